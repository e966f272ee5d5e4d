"""Plain values in and out of a box, for ``runner``.

``encoded`` writes what a candidate returned; the host treats it as hostile. ``read_value`` reads what the host wrote.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

REPEATED: dict[int, int | None] = {}
"""The id of an object that stands in several places of a call's arguments → its number, or ``None`` before it is written.

It is empty in a candidate's box."""


def encoded(value: object) -> bytes:
    """Return ``value`` as bytes. A value may nest deeper than the interpreter allows calls to."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 5000))
    try:
        return encode_value(value).encode()
    finally:
        sys.setrecursionlimit(before)


def encoded_call(arguments: "tuple[Any, ...]", keywords: "dict[str, Any]") -> bytes:
    """Return the arguments of a call as bytes; what is one object there stays one object."""
    REPEATED.update(dict.fromkeys(repeated([arguments, keywords])))
    try:
        return encoded([arguments, keywords])
    finally:
        REPEATED.clear()


def repeated(value: object) -> set[int]:
    """Return the ids of the objects inside ``value`` that can change and stand there more than once."""
    seen: set[int] = set()
    again: set[int] = set()
    pending: list[Any] = [value]
    while pending:
        part = pending.pop()
        is_deque = (type(part).__module__, type(part).__qualname__) == ("collections", "deque")
        if is_deque or isinstance(part, (list, dict, set, bytearray)):
            if id(part) in seen:
                again.add(id(part))
                continue
            seen.add(id(part))
        if is_deque or isinstance(part, (list, tuple)):
            pending.extend(part)
        elif isinstance(part, dict):
            pending.extend(dict.values(part))
    return again


def encode_value(value: object) -> str:
    """Return ``value`` as ASCII JSON, with text as hex. A subclass is encoded as its plain base type, ignoring its methods."""
    if value is None:
        return "null"
    if id(value) in REPEATED:
        if (before := REPEATED[id(value)]) is not None:
            return '{"again":%d}' % before
        REPEATED[id(value)] = number = sum(given is not None for given in REPEATED.values())
        return '{"shared":[%d,%s]}' % (number, encode_plain(value))
    return encode_plain(value)


def encode_plain(value: "Any") -> str:
    kind: Any = type(value)
    if kind in ENCODERS:
        return ENCODERS[kind](value)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return '{"namedtuple":[[%s],[%s]]}' % (",".join('"%s"' % name for name in kind._fields), listed(tuple.__iter__(value)))
    for base in kind.__mro__:
        if base in ENCODERS:
            return ENCODERS[base](value)
        if (base.__module__, base.__qualname__) in IMPORTED:
            return IMPORTED[base.__module__, base.__qualname__](value)
    if hasattr(kind, "__next__"):
        return '{"iterator":[%s]}' % listed(bounded(value))
    raise TypeError("a %s cannot be judged: return plain values" % kind.__name__)


def listed(items: "Iterable[Any]") -> str:
    return ",".join(map(encode_value, items))


def paired(items: "Iterable[tuple[Any, Any]]") -> str:
    return ",".join("[%s,%s]" % (encode_value(key), encode_value(item)) for key, item in items)


def bounded(iterator: "Iterator[Any]") -> "Iterator[Any]":
    for count, item in enumerate(iterator):
        if count == 100_000:
            raise TypeError("an iterator of more than 100,000 items cannot be judged")
        yield item


def encode_defaultdict(value: "Any") -> str:
    if value.default_factory in (int, float, str, list, dict, set):
        return '{"defaultdict":["%s",[%s]]}' % (value.default_factory.__name__, paired(dict.items(value)))
    return '{"dict":[%s]}' % paired(dict.items(value))


ENCODERS: "dict[type, Callable[[Any], str]]" = {
    bool: lambda value: "true" if value else "false",
    int: lambda value: '{"int":"%x"}' % int.__add__(value, 0),
    float: lambda value: '{"float":"%s"}' % float.hex(value),
    str: lambda value: '{"str":"%s"}' % str.encode(value, "utf-8", "surrogatepass").hex(),
    bytes: lambda value: '{"bytes":"%s"}' % bytes.hex(value),
    bytearray: lambda value: '{"bytearray":"%s"}' % bytearray.hex(value),
    complex: lambda value: '{"complex":["%s","%s"]}' % (float.hex(value.real), float.hex(value.imag)),
    list: lambda value: "[%s]" % listed(list.__iter__(value)),
    tuple: lambda value: '{"tuple":[%s]}' % listed(tuple.__iter__(value)),
    set: lambda value: '{"set":[%s]}' % listed(set.__iter__(value)),
    frozenset: lambda value: '{"frozenset":[%s]}' % listed(frozenset.__iter__(value)),
    dict: lambda value: '{"dict":[%s]}' % paired(dict.items(value)),
    range: lambda value: '{"range":["%x","%x","%x"]}' % (value.start, value.stop, value.step),
    type({}.keys()): lambda value: '{"keys":[%s]}' % listed(value),
    type({}.values()): lambda value: '{"values":[%s]}' % listed(value),
    type({}.items()): lambda value: '{"items":[%s]}' % listed(value),
}
"""Encoders by the plain type of a value."""
IMPORTED: "dict[tuple[str, str], Callable[[Any], str]]" = {
    ("collections", "Counter"): lambda value: '{"Counter":[%s]}' % paired(dict.items(value)),
    ("collections", "OrderedDict"): lambda value: '{"OrderedDict":[%s]}' % paired(value.items()),
    ("collections", "defaultdict"): encode_defaultdict,
    ("collections", "deque"): lambda value: '{"deque":[%s]}' % listed(value),
    ("fractions", "Fraction"): lambda value: '{"Fraction":["%x","%x"]}' % (value.numerator, value.denominator),
    ("decimal", "Decimal"): lambda value: '{"Decimal":"%s"}' % value,
}
"""Encoders by the name of a type that this code does not import."""


def described(error: BaseException) -> "list[Any]":
    """Return what tests may see of an exception: name, built-in classes, message, arguments, and the members of a group."""
    kind = type(error)
    builtin = [base for base in kind.__mro__ if base.__module__ == "builtins" and issubclass(base, BaseException)]
    nearest = [base.__name__ for base in builtin if not any(other is not base and issubclass(other, base) for other in builtin)]
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the candidate's code may raise anything
        message = ""
    arguments: Any = error.args
    members: list[Any] | None = None
    if isinstance(error, BaseExceptionGroup):
        arguments, members = (error.message,), [described(member) for member in error.exceptions]
    elif isinstance(error, OSError) and len(arguments) == 2 and error.filename is not None:
        arguments = (*arguments, error.filename, None, error.filename2)
    try:
        encode_value(arguments)
    except Exception:  # noqa: BLE001 - as above
        arguments = None
    return [kind.__name__, nearest, message, arguments, members]


def exception_from(name: str, bases: list[str], message: str, arguments: "Any", members: "list[Any] | None") -> BaseException:
    """Return the exception that ``described`` has described."""
    import builtins

    kinds = tuple(getattr(builtins, base) for base in bases)
    kind: type[BaseException] = kinds[0] if [name] == bases else type(name, kinds, {"__module__": "candidate"})
    if members is not None:
        return kind(arguments[0], [exception_from(*member) for member in members])
    error = raised(kind, (message,) if arguments is None else arguments)
    if str(error) != message:  # the candidate's class has a message of its own
        error = raised(type(name, (kind,), {"__module__": "candidate", "__str__": lambda _: message}), error.args)
    return error


def raised(kind: type[BaseException], arguments: "tuple[Any, ...]") -> BaseException:
    try:
        return kind(*arguments)
    except Exception:  # noqa: BLE001 - such as a UnicodeDecodeError without its five arguments
        error = kind.__new__(kind)
        error.args = arguments
        return error


class Names(dict[str, object]):
    """The names that the host's expressions for values may use. Modules are imported when a value needs them."""

    def __missing__(self, name: str) -> object:
        if name in ("Counter", "OrderedDict", "defaultdict", "deque"):
            import collections

            return getattr(collections, name)
        if name in ("Fraction", "Decimal"):
            return getattr(__import__("fractions" if name == "Fraction" else "decimal"), name)
        raise KeyError(name)


def named(fields: list[str], values: list[object]) -> object:
    import collections

    make: Any = collections.namedtuple  # the host chooses the fields
    return make("Record", fields, rename=True)(*values)


def read_value(source: bytes | str) -> "Any":
    """Return the value of an expression that the host wrote."""
    names = Names(nan=float("nan"), inf=float("inf"), named=named, keys_of=lambda items: dict.fromkeys(items).keys())
    names.update(values_of=lambda items: dict(enumerate(items)).values(), items_of=lambda items: dict(items).items())
    return eval(source, {}, names)  # noqa: S307 - the host wrote it
