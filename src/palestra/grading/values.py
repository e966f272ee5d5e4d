"""Plain values that leave a box, as inert trees.

An answer is decoded (``decoding``) into ``None``, booleans, numbers, text, bytes, lists, and ``Node`` for every other kind.
Nothing is hashed and no method of the box's objects is called, so an answer can neither fake its type nor stall the host with
colliding keys. Comparison is strict about types: ``1``, ``1.0`` and ``True`` differ, and so do a list and a tuple. A subclass
counts as the plain type that it is built on: a ``Counter`` is a dict, a named tuple a tuple, an ``IntEnum`` an integer.
"""

import math
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["BASES", "BadValue", "Node", "Tree", "expression", "same", "tree_of"]

BASES = {
    "tuple": "tuple",
    "set": "set",
    "frozenset": "frozenset",
    "dict": "dict",
    "Counter": "dict",
    "OrderedDict": "dict",
    "defaultdict": "dict",
    "namedtuple": "tuple",
    "deque": "deque",
    "range": "range",
    "bytearray": "bytearray",
    "Fraction": "Fraction",
    "Decimal": "Decimal",
    "iterator": "iterator",
    "keys": "keys",
    "values": "values",
    "items": "items",
}
"""The kinds of node → the kind as which each is compared."""
_UNORDERED = ("set", "frozenset", "dict", "keys", "items")
_ZERO = 1e-6
"""Factor of the relative tolerance that gives the absolute tolerance near zero."""
_LARGEST_POWER = 300
"""Largest power of ten for which a ``Decimal`` is converted to another number type."""
_LONGEST_KEY = 14_000
"""Most bits of an integer key that is compared as text: Python writes no integer of more than 4300 digits."""

Tree = Any
"""``None | bool | int | float | complex | str | bytes | list[Tree] | Node``: recursive, and built only here."""


class BadValue(ValueError):
    """The bytes are not a value, or the value is not plain."""


@dataclass(frozen=True)
class Node:
    """A value of a type that JSON lacks. The items of a dict are lists of a key and a value, in its order."""

    kind: str
    items: list[Tree]
    detail: tuple[str, ...] = ()
    """The fields of a named tuple, the factory of a ``defaultdict``, the text of a ``Decimal``."""


def tree_of(value: object) -> Tree:
    """Return the tree of a plain value of the host's own."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return value
    if type(value) is list:
        return [tree_of(item) for item in value]
    if type(value) in (tuple, set, frozenset, deque):
        return Node(type(value).__name__, [tree_of(item) for item in value])  # type: ignore[attr-defined]
    if isinstance(value, dict) and type(value) in (dict, Counter, OrderedDict, defaultdict):
        factory = getattr(value, "default_factory", None)
        detail = (factory.__name__,) if factory in _FACTORIES else ()
        kind = "dict" if type(value) is defaultdict and not detail else type(value).__name__
        return Node(kind, [[tree_of(key), tree_of(item)] for key, item in value.items()], detail)
    if type(value) is range:
        return Node("range", [value.start, value.stop, value.step])
    if type(value) is bytearray:
        return Node("bytearray", [bytes(value)])
    if type(value) is Fraction:
        return Node("Fraction", [value.numerator, value.denominator])
    if type(value) is Decimal:
        return Node("Decimal", [], (str(value),))
    raise BadValue(f"a {type(value).__name__} is not a plain value")


def expression(tree: Tree) -> str:
    """Return Python source for ``tree``, in terms of ``nan``, ``inf`` and the names that the runner in the box defines."""
    if isinstance(tree, Node):
        return _EXPRESSIONS[tree.kind](tree)
    if isinstance(tree, list):
        return f"[{', '.join(map(expression, tree))}]"
    if type(tree) is int:
        return hex(tree)
    if type(tree) is complex:
        return f"complex({expression(tree.real)}, {expression(tree.imag)})"
    return repr(tree)


# ------------------------------------------------------------------------------------------------------------- comparing


def same(expected: Tree, got: Tree, *, tolerance: float = 0.0, lenient: bool = False) -> bool:
    """Return whether two trees are the same value. ``tolerance`` is relative, for floats.

    Use ``lenient`` for expected values from JSON. Then a tuple equals a list, a number equals an equal number of another type,
    and a key of a dict equals the text that JSON makes of it.
    """
    if lenient:
        expected, got = _loose(expected), _loose(got)
    return _same(expected, got, tolerance, lenient)


def _same(expected: Tree, got: Tree, tolerance: float, lenient: bool) -> bool:
    if lenient and (number := _both_numbers(expected, got)) is not None:
        return number[0] == number[1] or _close(float(expected), float(got), tolerance)
    if isinstance(expected, Node):
        return isinstance(got, Node) and _same_nodes(expected, got, tolerance, lenient)
    if isinstance(expected, list):
        return isinstance(got, list) and _all_same(expected, got, tolerance, lenient)
    if type(expected) is not type(got):
        return False
    if type(expected) is complex:
        return _close(expected.real, got.real, tolerance) and _close(expected.imag, got.imag, tolerance)
    return _close(expected, got, tolerance) if type(expected) is float else bool(expected == got)


def _same_nodes(expected: Node, got: Node, tolerance: float, lenient: bool) -> bool:
    if BASES[expected.kind] != BASES[got.kind]:
        return False
    if expected.kind == "Decimal":
        return expected.detail == got.detail or _exact(expected) == _exact(got) is not None
    return _all_same(_ordered(expected), _ordered(got), tolerance, lenient)


def _both_numbers(expected: Tree, got: Tree) -> tuple[Any, Any] | None:
    """Return two numbers of different types that can be compared exactly; ``None`` for anything else."""
    if type(expected) is type(got) or type(expected) not in (int, float) or type(got) not in (int, float):
        return None
    if expected == got or (abs(expected) < 2**53 and abs(got) <= sys.float_info.max):
        return expected, got
    return None


def _all_same(expected: list[Tree], got: list[Tree], tolerance: float, lenient: bool) -> bool:
    return len(expected) == len(got) and all(_same(a, b, tolerance, lenient) for a, b in zip(expected, got, strict=True))


def _ordered(node: Node) -> list[Tree]:
    # Values are never hashed, so sorting makes two sets comparable.
    return sorted(node.items, key=expression) if BASES[node.kind] in _UNORDERED else node.items


def _close(expected: float, got: float, tolerance: float) -> bool:
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    # A sum that should be zero leaves a small rest, but 0.0 is not a correct answer for 5e-10.
    rest = tolerance if expected == 0 else tolerance * _ZERO
    return expected == got or math.isclose(expected, got, rel_tol=tolerance, abs_tol=rest)


def _exact(node: Node) -> Decimal | None:
    """Return the value of a ``Decimal`` that is a number."""
    value = Decimal(node.detail[0])
    return value if value.is_finite() else None


def _loose(tree: Tree) -> Tree:
    if isinstance(tree, list):
        return [_loose(item) for item in tree]
    if not isinstance(tree, Node):
        return tree
    if tree.kind == "Fraction":
        above, below = tree.items
        if below == 1:
            return above
        fraction = Fraction(above, below)
        return float(fraction) if abs(fraction) <= sys.float_info.max else tree
    if tree.kind == "Decimal":
        value = _exact(tree)
        if value is None or abs(value.adjusted()) > _LARGEST_POWER:
            return tree  # JSON has no number for it
        return int(value) if value == value.to_integral_value() else float(value)
    if BASES[tree.kind] == "dict":
        return Node("dict", [[_json_key(key), _loose(item)] for key, item in tree.items])
    items = [_loose(item) for item in tree.items]
    return items if BASES[tree.kind] == "tuple" else Node(tree.kind, items, tree.detail)


def _json_key(key: Tree) -> Tree:
    """Return ``key`` as JSON writes it: JSON keys are text. A very long integer stays an integer."""
    if key is None:
        return "null"
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is int and key.bit_length() > _LONGEST_KEY:
        return key
    return str(key) if type(key) in (int, float) else _loose(key)


# --------------------------------------------------------------------------------------------------------------- writing

_FACTORIES = (int, float, str, list, dict, set)


def _tuple_expression(node: Node) -> str:
    return f"({''.join(f'{expression(item)}, ' for item in node.items)})"


def _dict_expression(node: Node) -> str:
    return f"{{{', '.join(f'{expression(key)}: {expression(value)}' for key, value in node.items)}}}"


def _call(name: str) -> Callable[[Node], str]:
    return lambda node: f"{name}({expression(node.items)})"


def _spread(name: str) -> Callable[[Node], str]:
    return lambda node: f"{name}({', '.join(map(expression, node.items))})"


_EXPRESSIONS: dict[str, Callable[[Node], str]] = {
    "tuple": _tuple_expression,
    "dict": _dict_expression,
    "set": _call("set"),
    "frozenset": _call("frozenset"),
    "deque": _call("deque"),
    "iterator": _call("iter"),
    "keys": _call("keys_of"),
    "values": _call("values_of"),
    "items": _call("items_of"),
    "range": _spread("range"),
    "bytearray": _spread("bytearray"),
    "Fraction": _spread("Fraction"),
    "Decimal": lambda node: f"Decimal({node.detail[0]!r})",
    "Counter": lambda node: f"Counter({_dict_expression(node)})",
    "OrderedDict": _call("OrderedDict"),
    "defaultdict": lambda node: f"defaultdict({node.detail[0]}, {_dict_expression(node)})",
    "namedtuple": lambda node: f"named({node.detail!r}, {_tuple_expression(node)})",
}
