"""Decode a box's answer into trees (see ``values``). The bytes are untrusted.

The size of an answer is counted before it is read: ``[[]] * 1_000_000`` takes four megabytes on the wire and seconds to
traverse. ``decode`` takes tens of milliseconds for the largest answer that it accepts; the judge calls it off the event loop.
"""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import msgspec

from palestra.grading.values import BASES, BadValue, Node, Tree

__all__ = ["MOST_MARKS", "decode", "marks"]

_MAX_DEPTH = 100
MOST_MARKS = 400_000
"""Most brackets and commas of an answer: enough for a list of 200,000 numbers."""
_LONGEST_DECIMAL = 1_000
"""Most digits of a Decimal or Fraction, so that arithmetic with it stays fast."""
_FACTORIES = ("int", "float", "str", "list", "dict", "set")


def marks(data: bytes) -> int:
    """Count the brackets and commas in ``data``: an upper bound of its values, and fast to compute."""
    return data.count(b"[") + data.count(b"{") + data.count(b",")


def decode(data: bytes) -> Tree:
    """Return the tree in ``data``, as the runner in the box encodes it. Raise ``BadValue`` for anything else."""
    if marks(data) > MOST_MARKS:
        raise BadValue("the value is too large to be judged: it has more than about 200,000 parts")
    try:
        return _read(msgspec.json.decode(data), 0)
    except BadValue:
        raise
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, InvalidOperation) as error:
        raise BadValue(f"not a value: {error}") from None


def _read(raw: object, depth: int) -> Tree:
    if depth > _MAX_DEPTH:
        raise BadValue("the value is nested too deeply")
    if raw is None or type(raw) is bool:
        return raw
    if type(raw) is list:
        return [_read(item, depth + 1) for item in raw]
    if type(raw) is dict and len(raw) == 1:
        ((kind, content),) = raw.items()
        if kind in _SCALARS and type(content) is str:
            return _SCALARS[kind](content)
        if kind in _PAIRS and type(content) is list and len(content) == 2:
            return _PAIRS[kind](content[0], content[1], depth + 1)
        if kind in _CONTAINERS and type(content) is list:
            return Node(kind, [_read_item(kind, item, depth + 1) for item in content])
        if kind == "range" and type(content) is list and len(content) == 3:
            return Node("range", [int(part, 16) for part in content])
    raise BadValue("not a value that the runner encodes")


def _read_item(kind: str, raw: object, depth: int) -> Tree:
    if BASES[kind] == "dict" and (type(raw) is not list or len(raw) != 2):
        raise BadValue("an item of a dict must be a key and a value")
    return _read(raw, depth)


def _read_text(content: str) -> str:
    return bytes.fromhex(content).decode("utf-8", "surrogatepass")


def _read_decimal(content: str) -> Node:
    if len(content) > _LONGEST_DECIMAL:
        raise BadValue("a Decimal has too many digits")
    return Node("Decimal", [], (str(Decimal(content)),))


def _read_fraction(above: str, below: str, _: int) -> Node:
    if len(above) + len(below) > _LONGEST_DECIMAL:
        raise BadValue("a Fraction has too many digits")
    denominator = int(below, 16)
    if denominator <= 0:
        raise BadValue("the denominator of a Fraction must be above zero")
    return Node("Fraction", [int(above, 16), denominator])


def _read_complex(real: str, imaginary: str, _: int) -> complex:
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _read_defaultdict(factory: object, items: object, depth: int) -> Node:
    if factory not in _FACTORIES or type(items) is not list:
        raise BadValue("a defaultdict must have a plain factory and items")
    return Node("defaultdict", [_read_item("dict", item, depth) for item in items], (str(factory),))


def _read_namedtuple(fields: object, items: object, depth: int) -> Node:
    if type(fields) is not list or type(items) is not list or len(fields) != len(items):
        raise BadValue("a named tuple must have a value for every field")
    names = tuple(str(name) for name in fields)
    if len(set(names)) != len(names) or not all(name.isidentifier() and not name.startswith("_") for name in names):
        raise BadValue("the fields of a named tuple must have different names")
    return Node("namedtuple", [_read(item, depth) for item in items], names)


_SCALARS: dict[str, Callable[[str], Tree]] = {
    "int": lambda content: int(content, 16),
    "float": float.fromhex,
    "str": _read_text,
    "bytes": bytes.fromhex,
    "bytearray": lambda content: Node("bytearray", [bytes.fromhex(content)]),
    "Decimal": _read_decimal,
}
_PAIRS: dict[str, Callable[..., Tree]] = {
    "complex": _read_complex,
    "Fraction": _read_fraction,
    "defaultdict": _read_defaultdict,
    "namedtuple": _read_namedtuple,
}
_CONTAINERS = ("tuple", "set", "frozenset", "dict", "Counter", "OrderedDict", "deque", "iterator", "keys", "values", "items")
