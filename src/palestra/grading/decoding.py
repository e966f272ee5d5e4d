"""Decode a box's answer into trees (see ``values``). The bytes are untrusted.

The size of an answer is counted before it is read: ``[[]] * 1_000_000`` takes four megabytes on the wire and seconds to
traverse. ``decode`` takes tens of milliseconds for the largest answer that it accepts; the judge calls it off the event loop.
"""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from palestra.grading.values import BASES, BadValue, Node, Tree

__all__ = ["MOST_MARKS", "decode", "marks"]

_MAX_DEPTH = 250
MOST_MARKS = 400_000
"""Most brackets and commas of an answer: enough for a list of 200,000 numbers."""
_LONGEST_DECIMAL = 1_000
"""Most digits of a Decimal or Fraction, so that arithmetic with it stays fast."""
_FACTORIES = ("int", "float", "str", "list", "dict", "set")


def marks(data: bytes) -> int:
    """Count the brackets and commas in ``data``: an upper bound of its values, and fast to compute."""
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def decode(data: bytes, *, shared: bool = False) -> Tree:
    """Return the tree in ``data``, as the runner in the box encodes it. Raise ``BadValue`` for anything else.

    With ``shared``, objects that stand in several places are kept as one: for arguments that trusted test code passes.
    """
    if marks(data) > MOST_MARKS:
        raise BadValue("the value is too large to be judged: it has more than about 200,000 parts")
    try:
        return _Reader(shared).read(msgspec.json.decode(data), 0)
    except BadValue:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, InvalidOperation) as error:
        raise BadValue(f"not a value: {error}") from None


class _Reader:
    def __init__(self, shared: bool) -> None:
        self._shared = shared

    def read(self, raw: object, depth: int) -> Tree:
        if depth > _MAX_DEPTH:
            raise BadValue("the value is nested too deeply")
        if raw is None or type(raw) is bool:
            return raw
        if type(raw) is list:
            return [self.read(item, depth + 1) for item in raw]
        if type(raw) is dict and len(raw) == 1:
            ((kind, content),) = raw.items()
            if kind in _SCALARS and type(content) is str:
                return _SCALARS[kind](content)
            if kind in _CONTAINERS and type(content) is list:
                return Node(kind, self._items(kind, content, depth + 1))
            if kind == "shared" and self._shared and type(content) is list and len(content) == 2:
                return Node("shared", [self.read(content[1], depth)], (str(int(content[0])),))
            if kind == "again" and self._shared and type(content) is int:
                return Node("again", [], (str(content),))
            if type(content) is list:
                return self._read_other(kind, content, depth + 1)
        raise BadValue("not a value that the runner encodes")

    def _items(self, kind: str, content: list[object], depth: int) -> list[Tree]:
        if BASES[kind] == "dict" and not all(type(item) is list and len(item) == 2 for item in content):
            raise BadValue("an item of a dict must be a key and a value")
        return [self.read(item, depth) for item in content]

    def _read_other(self, kind: str, content: list[Any], depth: int) -> Tree:
        if kind == "complex" and len(content) == 2:
            return complex(float.fromhex(content[0]), float.fromhex(content[1]))
        if kind == "range" and len(content) == 3:
            return _read_range(*content)
        if kind == "Fraction" and len(content) == 2:
            return _read_fraction(*content)
        if kind == "defaultdict" and len(content) == 2:
            factory, items = content
            if factory not in _FACTORIES or type(items) is not list:
                raise BadValue("a defaultdict must have a plain factory and items")
            return Node("defaultdict", self._items("defaultdict", items, depth), (factory,))
        if kind == "namedtuple" and len(content) == 2:
            fields, items = content
            if type(fields) is not list or type(items) is not list or len(fields) != len(items):
                raise BadValue("a named tuple must have a value for every field")
            return Node("namedtuple", self._items("namedtuple", items, depth), _field_names(fields))
        raise BadValue("not a value that the runner encodes")


def _field_names(fields: list[object]) -> tuple[str, ...]:
    names = tuple(str(name) for name in fields)
    # _1 is the name that rename=True gives the second field if its own cannot be one.
    good = [(name.isidentifier() and not name.startswith("_")) or name == f"_{index}" for index, name in enumerate(names)]
    if len(set(names)) != len(names) or not all(good):
        raise BadValue("the fields of a named tuple must have different names")
    return names


def _read_text(content: str) -> str:
    return bytes.fromhex(content).decode("utf-8", "surrogatepass")


def _read_decimal(content: str) -> Node:
    if len(content) > _LONGEST_DECIMAL:
        raise BadValue("a Decimal has too many digits")
    return Node("Decimal", [], (str(Decimal(content)),))


def _read_fraction(above: str, below: str) -> Node:
    if len(above) + len(below) > _LONGEST_DECIMAL:
        raise BadValue("a Fraction has too many digits")
    denominator = int(below, 16)
    if denominator <= 0:
        raise BadValue("the denominator of a Fraction must be above zero")
    return Node("Fraction", [int(above, 16), denominator])


def _read_range(start: str, stop: str, step: str) -> Node:
    bounds = [int(start, 16), int(stop, 16), int(step, 16)]
    if bounds[2] == 0:
        raise BadValue("the step of a range must not be 0")
    return Node("range", bounds)


_SCALARS: dict[str, Callable[[str], Tree]] = {
    "int": lambda content: int(content, 16),
    "float": float.fromhex,
    "str": _read_text,
    "bytes": bytes.fromhex,
    "bytearray": lambda content: Node("bytearray", [bytes.fromhex(content)]),
    "Decimal": _read_decimal,
}
_CONTAINERS = ("tuple", "set", "frozenset", "dict", "Counter", "OrderedDict", "deque", "iterator", "keys", "values", "items")
