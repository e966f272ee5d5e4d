"""Plain values that leave a box, as inert trees.

An answer is decoded (``decoding``) into ``None``, booleans, numbers, text, bytes, lists, and ``Node`` for every other kind.
Nothing is hashed and no method of the box's objects is called, so an answer can neither fake its type nor stall the host with
colliding keys. Comparison is strict about types: ``1``, ``1.0`` and ``True`` differ, and so do a list and a tuple. A subclass
counts as the plain type that it is built on: a ``Counter`` is a dict, a named tuple a tuple, an ``IntEnum`` an integer.
"""

import math
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

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
_NUMBERS = ("Fraction", "Decimal")
_ZERO = 1e-6
"""Factor of the relative tolerance that gives the absolute tolerance near zero."""
_LARGEST_POWER = 300
"""Largest power of ten of a ``Decimal`` that is compared with numbers of other types."""
_LONGEST_RANGE = 200_000
"""Most numbers of a range that is compared as a list."""
_MOST_STEPS = 2_000_000
"""Most pairs of items that are looked at when unordered containers are compared."""
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
    """Return Python source for ``tree``, in terms of ``nan``, ``inf`` and the names that the runner in the box defines.

    Python refuses source in which 200 brackets nest, so a deep part gets a name, and so does what stands in several places.
    """
    definitions: list[str] = []
    written: list[tuple[str, int]] = []  # finished parts, and how deep each nests
    pending: list[tuple[Tree, int]] = [(tree, -1)]  # parts, and the number of their items; -1 if these are still to be written
    while pending:
        part, count = pending.pop()
        if count < 0:
            items = _items_of(part)
            if items is None:
                written.append((_scalar_expression(part), 0))
                continue
            pending.append((part, len(items)))
            pending += [(item, -1) for item in reversed(items)]
            continue
        inner = written[len(written) - count :]
        del written[len(written) - count :]
        text, depth = _composed(part, [item for item, _ in inner]), 1 + max((below for _, below in inner), default=0)
        if depth >= _DEEPEST_SOURCE or (isinstance(part, Node) and part.kind == "shared"):
            name = (
                f"shared_{part.detail[0]}" if isinstance(part, Node) and part.kind == "shared" else f"deep_{len(definitions)}"
            )
            definitions.append(f"{name} := {text}")
            text, depth = name, 0
        written.append((text, depth))
    return f"[{', '.join([*definitions, written[0][0]])}][-1]" if definitions else written[0][0]


# ------------------------------------------------------------------------------------------------------------- comparing


def same(expected: Tree, got: Tree, *, tolerance: float = 0.0, lenient: bool = False) -> bool:
    """Return whether two trees are the same value. ``tolerance`` is relative, for floats.

    Use ``lenient`` for expected values from JSON. Then a tuple or range equals a list, a number equals a number of another type
    with exactly the same value, and a key of a dict equals the text that JSON makes of it. Raise ``BadValue`` if the comparison
    would take too long.
    """
    if lenient:
        expected, got = _loose(expected), _loose(got)
    return _Comparison(tolerance, lenient).same(expected, got)


class _Comparison:
    """Compares two trees, and counts the steps that pairing the items of unordered containers takes."""

    def __init__(self, tolerance: float, lenient: bool) -> None:
        self._tolerance = tolerance
        self._lenient = lenient
        self._steps = _MOST_STEPS

    def same(self, expected: Tree, got: Tree) -> bool:
        pending = [(expected, got)]  # not recursive, so that the depth of a value does not matter
        while pending:
            ours, theirs = pending.pop()
            if isinstance(ours, Node) and isinstance(theirs, Node) and BASES[ours.kind] == BASES[theirs.kind] not in _NUMBERS:
                pairs = self._pairs_of_nodes(ours, theirs)
                if pairs is None:
                    return False
                pending += pairs
            elif isinstance(ours, list) and isinstance(theirs, list):
                if len(ours) != len(theirs):
                    return False
                pending += zip(ours, theirs, strict=True)
            elif not self._same_scalars(ours, theirs):
                return False
        return True

    def _same_scalars(self, expected: Tree, got: Tree) -> bool:
        if self._lenient and (numbers := _different_numbers(expected, got)) is not None:
            return self._same_numbers(*numbers)
        if type(expected) is not type(got):
            return False
        if isinstance(expected, Node):
            if expected.kind != got.kind or expected.kind not in _NUMBERS:
                return False
            if expected.kind == "Decimal":
                return expected.detail == got.detail or _exact(expected) == _exact(got) is not None
            return bool(expected.items == got.items)
        if type(expected) is complex:
            return self._close(expected.real, got.real) and self._close(expected.imag, got.imag)
        return self._close(expected, got) if type(expected) is float else type(expected) is not list and bool(expected == got)

    def _pairs_of_nodes(self, expected: Node, got: Node) -> "list[tuple[Tree, Tree]] | None":
        """Return the pairs that must be equal if two nodes of one kind are; ``None`` if the nodes differ."""
        kind = BASES[expected.kind]
        if kind == "range":
            return [] if range(*expected.items) == range(*got.items) else None
        if kind in _UNORDERED:
            return self._paired(expected.items, got.items, by_key=kind == "dict")
        return None if len(expected.items) != len(got.items) else list(zip(expected.items, got.items, strict=True))

    def _close(self, expected: float, got: float) -> bool:
        if math.isnan(expected) or math.isnan(got):
            return math.isnan(expected) and math.isnan(got)
        # A sum that should be zero leaves a small rest, but 0.0 is not a correct answer for 5e-10.
        rest = self._tolerance if expected == 0 else self._tolerance * _ZERO
        return expected == got or math.isclose(expected, got, rel_tol=self._tolerance, abs_tol=rest)

    def _same_numbers(self, expected: int | float | Fraction, got: int | float | Fraction) -> bool:
        """Compare numbers of different types: exactly, unless a fraction of the candidate stands for an expected float."""
        if expected == got:
            return True
        if type(expected) is not float or type(got) is not Fraction or abs(got) > sys.float_info.max:
            return False
        return self._close(expected, float(got))

    def _paired(self, expected: list[Tree], got: list[Tree], *, by_key: bool) -> "list[tuple[Tree, Tree]] | None":
        """Return what is left to compare if the items of two unordered containers can be paired; ``None`` if they cannot.

        Items with different outlines are never equal, so only those with one outline are paired. Values are never hashed: a box
        could choose them so that they collide. Outlines are text, whose hashes nobody can choose.
        """
        if len(expected) != len(got):
            return None
        groups: dict[str, tuple[list[_Item], list[_Item]]] = {}
        for side, items in enumerate((expected, got)):
            for item in items:
                floats: list[float] = []
                outline = self._outline(item[0] if by_key else item, floats)
                groups.setdefault(outline, ([], []))[side].append(_Item(floats, item))
        left: list[tuple[Tree, Tree]] = []
        for ours, theirs in groups.values():
            if len(ours) != len(theirs):
                return None
            if len(ours) == 1:
                left.append((ours[0].tree, theirs[0].tree))
            elif (by_key or ours[0].floats) and not self._group_can_be_paired(ours, theirs):
                return None
        return left

    def _group_can_be_paired(self, expected: list["_Item"], got: list["_Item"]) -> bool:
        """Return whether several items of one outline can be paired, by looking for augmenting paths."""
        candidates = _Candidates(expected, got, self._tolerance)
        partner_of: dict[int, int] = {}  # item of got → item of expected
        given_to: dict[int, int] = {}  # the same the other way around
        equal: dict[int, list[int]] = {}

        def equals(item: int) -> list[int]:
            if item not in equal:
                near = candidates.of(expected[item])
                self._steps -= len(near)
                if self._steps < 0:
                    raise BadValue("the value has too many unordered floats to be compared")
                equal[item] = [other for other in near if self.same(expected[item].tree, got[other].tree)]
            return equal[item]

        for start in range(len(expected)):
            reached: dict[int, int] = {}  # item of got → item of expected from which the path came
            pending, free = [start], -1
            while pending and free < 0:
                item = pending.pop()
                for other in equals(item):
                    self._steps -= 1
                    if other in reached:
                        continue
                    reached[other] = item
                    if other not in partner_of:
                        free = other
                        break
                    pending.append(partner_of[other])
            if free < 0:
                return False
            while free >= 0:  # turn the path around
                item = reached[free]
                before = given_to.get(item, -1)
                partner_of[free], given_to[item] = item, free
                free = before
        return True

    def _outline(self, tree: Tree, floats: list[float]) -> str:
        """Return text that equal trees share, and append the numbers that it leaves out because they have a tolerance."""
        if self._lenient and (number := _number(tree)) is not None:
            floats.append(_as_float(number))
            return "~"
        if type(tree) is float:
            return self._outline_of_float(tree, floats)
        if type(tree) is complex:
            return f"({self._outline_of_float(tree.real, floats)},{self._outline_of_float(tree.imag, floats)})"
        if isinstance(tree, list):
            return f"[{','.join([self._outline(item, floats) for item in tree])}]"
        if not isinstance(tree, Node):
            return expression(tree)
        kind = BASES[tree.kind]
        if kind == "Decimal":
            value = _exact(tree)
            return f"Decimal {tree.detail if value is None else value.as_integer_ratio() if _is_short(value) else 'long'}"
        if kind == "range":
            numbers = range(*tree.items)
            return f"range {len(numbers) and (hex(numbers[0]), hex(numbers[-1]), len(numbers) > 1 and hex(numbers.step))}"
        inner = [self._outline(item, floats) for item in tree.items]
        return f"{kind}({','.join(sorted(inner) if kind in _UNORDERED else inner)})"

    def _outline_of_float(self, value: float, floats: list[float]) -> str:
        if not math.isfinite(value):
            return repr(value)
        floats.append(value)
        return "~"


class _Item(NamedTuple):
    """An item of an unordered container."""

    floats: list[float]
    """The numbers that its outline leaves out."""
    tree: Tree


class _Candidates:
    """Finds the few items that may equal an item, among those of one outline: those with a number near one of its own.

    Where order does not count inside the items either, only their largest numbers can be compared. Otherwise the position in
    which the numbers differ most selects best.
    """

    def __init__(self, expected: list[_Item], got: list[_Item], tolerance: float) -> None:
        self._tolerance = tolerance
        ordered = not any(_has_unordered_floats(item.tree) for item in (expected[0], got[0]))
        width = len(expected[0].floats) if ordered else 0
        distinct = [len({item.floats[position] for item in expected}) for position in range(width)]
        self._place = distinct.index(max(distinct)) if distinct else None
        self._sorted = sorted((self._measure(item), other) for other, item in enumerate(got))

    def of(self, item: _Item) -> list[int]:
        """Return the places of the items that ``item`` may equal."""
        middle, slack = self._measure(item), min(self._tolerance, 0.5)
        reach = (abs(middle) * slack + slack) / (1 - slack) if self._tolerance <= 0.5 else math.inf
        first = bisect_left(self._sorted, (middle - reach, -1))
        last = bisect_right(self._sorted, (middle + reach, len(self._sorted)))
        return [other for _, other in self._sorted[first:last]]

    def _measure(self, item: _Item) -> float:
        return max(map(abs, item.floats), default=0.0) if self._place is None else item.floats[self._place]


def _has_unordered_floats(tree: Tree) -> bool:
    if isinstance(tree, Node):
        if BASES[tree.kind] in _UNORDERED:
            return len(tree.items) > 1
        return any(map(_has_unordered_floats, tree.items))
    return isinstance(tree, list) and any(map(_has_unordered_floats, tree))


def _different_numbers(expected: Tree, got: Tree) -> tuple[int | float | Fraction, int | float | Fraction] | None:
    """Return the values of two numbers of different types; ``None`` for anything else."""
    ours, theirs = _number(expected), _number(got)
    return None if ours is None or theirs is None or type(ours) is type(theirs) is not Fraction else (ours, theirs)


def _number(tree: Tree) -> int | float | Fraction | None:
    """Return the number that ``tree`` is in JSON; ``None`` if it is none, or a ``Decimal`` too long for exact arithmetic."""
    if type(tree) in (int, float):
        return tree if type(tree) is int or math.isfinite(tree) else None
    if isinstance(tree, Node) and tree.kind == "Fraction":
        return Fraction(*tree.items)
    if isinstance(tree, Node) and tree.kind == "Decimal":
        value = _exact(tree)
        return Fraction(value) if value is not None and _is_short(value) else None
    return None


def _as_float(number: int | float | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return sys.float_info.max if number > 0 else -sys.float_info.max


def _is_short(value: Decimal) -> bool:
    return abs(value.adjusted()) <= _LARGEST_POWER and abs(value.as_tuple().exponent) <= 10 * _LARGEST_POWER  # type: ignore[arg-type]


def _exact(node: Node) -> Decimal | None:
    """Return the value of a ``Decimal`` that is a number."""
    value = Decimal(node.detail[0])
    return value if value.is_finite() else None


def _loose(tree: Tree) -> Tree:
    if isinstance(tree, list):
        return [_loose(item) for item in tree]
    if not isinstance(tree, Node):
        return tree
    if BASES[tree.kind] == "dict":
        return Node("dict", [[_json_key(key), _loose(item)] for key, item in tree.items])
    if tree.kind == "range" and len(range(*tree.items)) <= _LONGEST_RANGE:
        return list(range(*tree.items))
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
_DEEPEST_SOURCE = 60


def _items_of(tree: Tree) -> list[Tree] | None:
    """Return the parts of a container, keys and values of a dict in turn; ``None`` if it is none."""
    if isinstance(tree, list):
        return tree
    if not isinstance(tree, Node) or tree.kind in ("Decimal", "again"):
        return None
    return [part for item in tree.items for part in item] if BASES.get(tree.kind) == "dict" else tree.items


def _scalar_expression(tree: Tree) -> str:
    if isinstance(tree, Node):
        return f"Decimal({tree.detail[0]!r})" if tree.kind == "Decimal" else f"shared_{tree.detail[0]}"
    if type(tree) is int:
        return hex(tree)
    if type(tree) is complex:
        return f"complex({tree.real!r}, {tree.imag!r})"
    return repr(tree)


def _composed(tree: Tree, items: list[str]) -> str:
    """Return the source of a container whose parts have this source."""
    if isinstance(tree, list):
        return f"[{', '.join(items)}]"
    kind, detail = tree.kind, tree.detail
    if kind in ("tuple", "namedtuple"):
        values = f"({''.join([f'{item}, ' for item in items])})"
        return values if kind == "tuple" else f"named({detail!r}, {values})"
    if kind == "shared":
        return items[0]
    if BASES[kind] == "dict":
        pairs = ", ".join([f"{key}: {value}" for key, value in zip(items[::2], items[1::2], strict=True)])
        return {"dict": f"{{{pairs}}}", "defaultdict": f"defaultdict({detail and detail[0]}, {{{pairs}}})"}.get(
            kind, f"{kind}({{{pairs}}})"
        )
    if kind in ("range", "bytearray", "Fraction"):
        return f"{kind}({', '.join(items)})"
    return f"{_MAKERS.get(kind, kind)}([{', '.join(items)}])"


_MAKERS = {"iterator": "iter", "keys": "keys_of", "values": "values_of", "items": "items_of"}
