"""Decide which texts are formulas that sympy may parse.

Sympy parses a text by evaluating it as Python, so only numbers, letters, the four operations, powers and a few functions may
reach it. Powers are bounded, because sympy would compute ``9**9**9**9``.
"""

import ast
from fractions import Fraction

__all__ = ["is_formula"]

LONGEST = 2_000
"""Characters."""
LARGEST_POWER = 200
"""Largest power of a number or of a sum that could be expanded."""
LARGEST_TOWER = 1_000
"""Largest product of nested powers."""
FUNCTIONS = frozenset({"sin", "cos", "tan", "exp", "log", "ln", "sqrt", "asin", "acos", "atan", "sinh", "cosh", "tanh", "Abs"})

_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)


def is_formula(text: str) -> bool:
    """Return whether ``text`` is a formula and nothing else."""
    if len(text) > LONGEST or "_" in text:
        return False
    try:
        return _allowed(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _allowed(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return isinstance(node.value, int | float) and not isinstance(node.value, bool) and abs(node.value) < 1e18
        case ast.Name():
            return node.id == "pi" or (len(node.id) == 1 and node.id.isalpha())
        case ast.UnaryOp():
            return isinstance(node.op, ast.UAdd | ast.USub) and _allowed(node.operand)
        case ast.Call(func=ast.Name(id=name)):
            return name in FUNCTIONS and len(node.args) == 1 and not node.keywords and _allowed(node.args[0])
        case ast.BinOp():
            return (
                isinstance(node.op, _OPERATIONS)
                and _allowed(node.left)
                and _allowed(node.right)
                and (not isinstance(node.op, ast.Pow) or _power_allowed(node))
            )
    return False


def _power_allowed(node: ast.BinOp) -> bool:
    if _holds(node.right, ast.Pow):
        return False
    if _has_letter(node.right):
        return True  # sympy leaves 2**x as it is
    if _holds(node.right, ast.Call):
        return False  # sympy would compute 2**exp(50)
    return abs(_value(node.right)) <= LARGEST_POWER and _height(node) <= LARGEST_TOWER


def _height(node: ast.expr) -> Fraction:
    """Return the product of nested powers: 6 for ``(x**2 + 1)**3``."""
    below = max((_height(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)), default=Fraction(1))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _has_letter(node.right):
        return below * max(Fraction(1), abs(_value(node.right)))
    return below


def _holds(node: ast.expr, kind: type[ast.AST]) -> bool:
    return any(isinstance(part, kind) for part in ast.walk(node))


def _has_letter(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id not in FUNCTIONS for part in ast.walk(node))


def _value(node: ast.expr) -> Fraction:
    """Return the value of an allowed formula without letters, functions and powers."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(number)
        case ast.UnaryOp():
            return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
        case ast.BinOp():
            left, right = _value(node.left), _value(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if not right:
                raise ValueError("division by zero")
            return left / right
    raise ValueError("not a number")
