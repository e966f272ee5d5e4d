"""Exact encoding: arrays of four-byte numbers, text without lone surrogates, JSON and msgpack.

Both formats hold the same data: an array is its bytes (base64 in JSON), keys are sorted, and decoding validates the type.
A live object in place of data does not make a value unwritable: ``tame`` replaces it with the name of its type.
"""

import base64
import itertools
import reprlib
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import SchemaError

__all__ = [
    "UNWRITABLE",
    "Floats",
    "Ints",
    "clean_text",
    "decode_json",
    "decode_msgpack",
    "encode_json",
    "encode_msgpack",
    "floats",
    "ints",
    "shown",
    "tame",
    "type_name",
]

UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""Exceptions that encoding a value may raise."""
_DEEPEST = 32
"""Containers nested deeper than this, or within themselves, are not followed."""
_MOST_ITEMS = 100_000
"""Most items that ``tame`` visits: a container that holds another one many times can be endless."""


class Ints(np.ndarray[tuple[int], np.dtype[np.int32]]):
    """A flat, read-only array of token ids: four bytes each in memory and on disk (base64 in JSON)."""


class Floats(np.ndarray[tuple[int], np.dtype[np.float32]]):
    """A flat, read-only array of log-probabilities: four bytes each in memory and on disk (base64 in JSON)."""


def ints(values: npt.ArrayLike) -> Ints:
    """Return ``values`` as ``Ints``, without a copy if they are ``Ints`` already."""
    return values if isinstance(values, Ints) else _frozen(np.array(values, dtype="<i4").ravel(), Ints)


def floats(values: npt.ArrayLike) -> Floats:
    """Return ``values`` as ``Floats``, without a copy if they are ``Floats`` already."""
    return values if isinstance(values, Floats) else _frozen(np.array(values, dtype="<f4").ravel(), Floats)


_A = TypeVar("_A", Ints, Floats)


def _frozen(array: np.ndarray[Any, Any], kind: type[_A]) -> _A:
    view = array.view(kind)
    view.flags.writeable = False
    return view


def clean_text(text: str) -> str:
    """Return ``text`` with lone surrogates replaced by U+FFFD, so that any file or wire can hold it."""
    if text.isascii():
        return text
    if not _has_surrogate(text):
        return text
    # Through UTF-16, where a pair of surrogates is an ordinary character.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def shown(value: object, longest: int = 200) -> str:
    """Return ``repr(value)`` for a message, without a failure and without the work of a long one, whatever ``value`` is."""
    try:
        return clean_text(str.__str__(_SHORT.repr(value)))[:longest]
    except BaseException:  # noqa: BLE001 - a stranger's __repr__ may raise anything, and the message matters more
        return "an object that cannot be shown"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 20

_T = TypeVar("_T")


def encode_json(value: object) -> bytes:
    """Return ``value`` as one line of JSON. Raise ``TypeError`` or ``UnicodeEncodeError`` if JSON cannot hold it."""
    return msgspec.json.encode(value, enc_hook=_plain, order="deterministic")


def encode_msgpack(value: object) -> bytes:
    """Return ``value`` as msgpack, under the same rules as JSON."""
    return msgspec.msgpack.encode(value, enc_hook=_plain, order="deterministic")


def decode_json(data: bytes | str, kind: type[_T]) -> _T:
    """Return a validated value of type ``kind`` from JSON. Raise ``SchemaError`` if it does not fit."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_array)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from None


def decode_msgpack(data: bytes, kind: type[_T]) -> _T:
    """Return a validated value of type ``kind`` from msgpack. Raise ``SchemaError`` if it does not fit."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_array)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from None


def tame(value: Any) -> Any:
    """Return ``value`` with everything that cannot be written replaced by the name of its type."""
    return _tamed(value, 0, itertools.count())


def _tamed(value: Any, depth: int, items: "itertools.count[int]") -> Any:
    if isinstance(value, str):
        return clean_text(value)
    followed = depth < _DEEPEST and next(items) < _MOST_ITEMS
    if followed and isinstance(value, dict):
        return {clean_text(str(key)): _tamed(item, depth + 1, items) for key, item in value.items()}
    if followed and isinstance(value, list | tuple):
        return [_tamed(item, depth + 1, items) for item in value]
    try:
        if isinstance(value, dict | list | tuple):
            raise TypeError  # not followed, because it may be endless
        encode_json(value)
    except UNWRITABLE:
        return {"$unserialisable": type_name(value)}
    return value


def _plain(value: object) -> object:
    if isinstance(value, Ints | Floats):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type_name(value)} cannot be written as JSON")


def type_name(value: object) -> str:
    """Return ``module.Class`` of ``value``."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _array(kind: type, value: object) -> object:
    # JSON has no bytes, so the array is base64 text there.
    data = base64.b64decode(value, validate=True) if isinstance(value, str) else value
    if not isinstance(data, bytes) or len(data) % 4:
        raise ValueError(f"{kind.__name__} must consist of 4-byte items")
    if kind is Ints:
        return _frozen(np.frombuffer(data, dtype="<i4"), Ints)
    return _frozen(np.frombuffer(data, dtype="<f4"), Floats)
