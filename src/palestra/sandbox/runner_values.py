"""Plain values in and out of a box: the second part of the program that continues in ``runner.py``.

``encode_value`` writes what a candidate returned; the host treats it as hostile. ``read_value`` reads what the host wrote.
"""


def encode_value(value):
    """Return ``value`` as ASCII JSON, with text as hex. A subclass is encoded as its plain base type, ignoring its methods."""
    if value is None:
        return "null"
    kind = type(value)
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


def listed(items):
    return ",".join(map(encode_value, items))


def paired(items):
    return ",".join("[%s,%s]" % (encode_value(key), encode_value(item)) for key, item in items)


def bounded(iterator):
    for count, item in enumerate(iterator):
        if count == 100_000:
            raise TypeError("an iterator of more than 100,000 items cannot be judged")
        yield item


def encode_defaultdict(value):
    if value.default_factory in (int, float, str, list, dict, set):
        return '{"defaultdict":["%s",[%s]]}' % (value.default_factory.__name__, paired(dict.items(value)))
    return '{"dict":[%s]}' % paired(dict.items(value))


ENCODERS = {
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
IMPORTED = {
    ("collections", "Counter"): lambda value: '{"Counter":[%s]}' % paired(dict.items(value)),
    ("collections", "OrderedDict"): lambda value: '{"OrderedDict":[%s]}' % paired(value.items()),
    ("collections", "defaultdict"): encode_defaultdict,
    ("collections", "deque"): lambda value: '{"deque":[%s]}' % listed(value),
    ("fractions", "Fraction"): lambda value: '{"Fraction":["%x","%x"]}' % (value.numerator, value.denominator),
    ("decimal", "Decimal"): lambda value: '{"Decimal":"%s"}' % value,
}
"""Encoders by the name of a type that this code does not import."""


class Names(dict):
    """The names that the host's expressions for values may use. Modules are imported when a value needs them."""

    def __missing__(self, name):
        if name in ("Counter", "OrderedDict", "defaultdict", "deque"):
            import collections

            return getattr(collections, name)
        if name in ("Fraction", "Decimal"):
            return getattr(__import__("fractions" if name == "Fraction" else "decimal"), name)
        raise KeyError(name)


def named(fields, values):
    import collections

    return collections.namedtuple("Record", fields)(*values)


def read_value(source):
    """Return the value of an expression that the host wrote."""
    names = Names(nan=float("nan"), inf=float("inf"), named=named, keys_of=lambda items: dict.fromkeys(items).keys())
    names.update(values_of=lambda items: dict(enumerate(items)).values(), items_of=lambda items: dict(items).items())
    return eval(source, {}, names)
