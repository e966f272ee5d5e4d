"""Plain values that cross the wall of a box, as trees that cannot do anything.

What comes out of a box is decoded into ``None``, booleans, numbers, text, bytes, lists, and ``Node`` for every other
container. Nothing is hashed and no method of the box's is called, so an answer can neither lie about its type nor stall the
host with keys that collide. Comparison is strict about types: ``1``, ``1.0`` and ``True`` differ, and so do a list and a
tuple.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

__all__ = ["BadValue", "Node", "Tree", "decode", "expression", "same", "tree_of"]

_MAX_DEPTH = 100
_UNORDERED = ("set", "frozenset", "dict")

Tree = Any
"""``None | bool | int | float | complex | str | bytes | list[Tree] | Node``: recursive, and only ever built here."""


class BadValue(ValueError):
    """Bytes that are no value, or a value that is not plain."""


@dataclass(frozen=True)
class Node:
    """A container that JSON has no word for. The items of a dict are lists of a key and a value, in its order."""

    kind: str
    items: list[Tree]


def tree_of(value: object) -> Tree:
    """The tree of a plain value of our own."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        return value
    if type(value) is list:
        return [tree_of(item) for item in value]
    if type(value) is tuple or type(value) is set or type(value) is frozenset:
        return Node(type(value).__name__, [tree_of(item) for item in value])
    if type(value) is dict:
        return Node("dict", [[tree_of(key), tree_of(item)] for key, item in value.items()])
    raise BadValue(f"a {type(value).__name__} is not a plain value")


def decode(data: bytes) -> Tree:
    """The tree in ``data``, as the runner in the box encodes it; ``BadValue`` for anything else."""
    try:
        return _read(msgspec.json.decode(data), 0)
    except BadValue:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadValue(f"not a value: {error}") from None


def expression(tree: Tree) -> str:
    """Python source for ``tree``, in terms of ``nan`` and ``inf``."""
    if isinstance(tree, Node):
        return _EXPRESSIONS[tree.kind](tree)
    if isinstance(tree, list):
        return f"[{', '.join(map(expression, tree))}]"
    if type(tree) is int:
        return hex(tree)
    if type(tree) is complex:
        return f"complex({expression(tree.real)}, {expression(tree.imag)})"
    return repr(tree)


def same(expected: Tree, got: Tree, *, tolerance: float = 0.0, lenient: bool = False) -> bool:
    """Whether two trees are the same value. ``tolerance`` is relative, for floats.

    ``lenient`` is for expected values that came from JSON: a tuple counts as a list, and an integer as an equal float.
    """
    if lenient:
        expected, got = _loose(expected), _loose(got)
    return _same(expected, got, tolerance, lenient)


def _same(expected: Tree, got: Tree, tolerance: float, lenient: bool) -> bool:
    if isinstance(expected, Node):
        return (
            isinstance(got, Node)
            and expected.kind == got.kind
            and _all_same(_ordered(expected), _ordered(got), tolerance, lenient)
        )
    if isinstance(expected, list):
        return isinstance(got, list) and _all_same(expected, got, tolerance, lenient)
    if lenient and {type(expected), type(got)} == {int, float}:
        return (
            bool(expected == got) or _close(float(expected), got, tolerance) if abs(expected) < 2**53 else bool(expected == got)
        )
    if type(expected) is not type(got):
        return False
    if type(expected) is complex:
        return _close(expected.real, got.real, tolerance) and _close(expected.imag, got.imag, tolerance)
    return _close(expected, got, tolerance) if type(expected) is float else bool(expected == got)


def _all_same(expected: list[Tree], got: list[Tree], tolerance: float, lenient: bool) -> bool:
    return len(expected) == len(got) and all(_same(a, b, tolerance, lenient) for a, b in zip(expected, got, strict=True))


def _ordered(node: Node) -> list[Tree]:
    # Without hashing, order is what makes two sets comparable.
    return sorted(node.items, key=expression) if node.kind in _UNORDERED else node.items


def _close(expected: float, got: float, tolerance: float) -> bool:
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    return expected == got or math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance)


def _loose(tree: Tree) -> Tree:
    if isinstance(tree, list):
        return [_loose(item) for item in tree]
    if isinstance(tree, Node):
        items = [_loose(item) for item in tree.items]
        return items if tree.kind == "tuple" else Node(tree.kind, items)
    return tree


# ---------------------------------------------------------------------------------------------------------------- reading


def _read(raw: object, depth: int) -> Tree:
    if depth > _MAX_DEPTH:
        raise BadValue("nested too deeply")
    if raw is None or type(raw) is bool:
        return raw
    if type(raw) is list:
        return [_read(item, depth + 1) for item in raw]
    if type(raw) is dict and len(raw) == 1:
        ((kind, content),) = raw.items()
        if kind in _SCALARS and type(content) is str:
            return _SCALARS[kind](content)
        if kind == "complex" and type(content) is list and len(content) == 2:
            return complex(float.fromhex(content[0]), float.fromhex(content[1]))
        if kind in _CONTAINERS and type(content) is list:
            return Node(kind, [_read_item(kind, item, depth + 1) for item in content])
    raise BadValue("not a value of the runner's making")


def _read_item(kind: str, raw: object, depth: int) -> Tree:
    if kind == "dict" and (type(raw) is not list or len(raw) != 2):
        raise BadValue("an item of a dict is a key and a value")
    return _read(raw, depth)


def _read_text(content: str) -> str:
    return bytes.fromhex(content).decode("utf-8", "surrogatepass")


_SCALARS: dict[str, Callable[[str], Tree]] = {
    "int": lambda content: int(content, 16),
    "float": float.fromhex,
    "str": _read_text,
    "bytes": bytes.fromhex,
}
_CONTAINERS = ("tuple", "set", "frozenset", "dict")


# ---------------------------------------------------------------------------------------------------------------- writing


def _tuple_expression(node: Node) -> str:
    return f"({''.join(f'{expression(item)}, ' for item in node.items)})"


def _dict_expression(node: Node) -> str:
    return f"{{{', '.join(f'{expression(key)}: {expression(value)}' for key, value in node.items)}}}"


_EXPRESSIONS: dict[str, Callable[[Node], str]] = {
    "tuple": _tuple_expression,
    "dict": _dict_expression,
    "set": lambda node: f"set({expression(node.items)})",
    "frozenset": lambda node: f"frozenset({expression(node.items)})",
}
