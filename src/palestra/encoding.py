"""To bytes and back, exactly: arrays of four-byte numbers, text without lone surrogates, JSON and msgpack.

Both formats hold the same: an array is its bytes (base64 in JSON), keys are in order, and what is read is validated against
its type. A live object where only data belongs costs nothing but itself: ``tame`` puts the name of its type in its place.
"""

import base64
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
    "tame",
]

UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What writing a value may raise."""
_DEEPEST = 32
"""Containers nested deeper than this, or within themselves, are not followed."""


class Ints(np.ndarray[tuple[int], np.dtype[np.int32]]):
    """A flat, read-only array of token ids: four bytes each in memory and on disk (base64 in JSON)."""


class Floats(np.ndarray[tuple[int], np.dtype[np.float32]]):
    """A flat, read-only array of log-probabilities: four bytes each in memory and on disk (base64 in JSON)."""


def ints(values: npt.ArrayLike) -> Ints:
    """``values`` as ``Ints``; no copy if they are that already."""
    return values if isinstance(values, Ints) else _frozen(np.array(values, dtype="<i4").ravel(), Ints)


def floats(values: npt.ArrayLike) -> Floats:
    """``values`` as ``Floats``; no copy if they are that already."""
    return values if isinstance(values, Floats) else _frozen(np.array(values, dtype="<f4").ravel(), Floats)


_A = TypeVar("_A", Ints, Floats)


def _frozen(array: np.ndarray[Any, Any], kind: type[_A]) -> _A:
    view = array.view(kind)
    view.flags.writeable = False
    return view


def clean_text(text: str) -> str:
    """``text`` with lone surrogates replaced by U+FFFD: what is left can be written to any file and sent over any wire."""
    if text.isascii():
        return text
    if not _has_surrogate(text):
        return text
    # By way of UTF-16, where two surrogates that make a pair are a character like any other.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


_T = TypeVar("_T")


def encode_json(value: object) -> bytes:
    """``value`` as one line of JSON; ``TypeError`` or ``UnicodeEncodeError`` if it holds what JSON cannot."""
    return msgspec.json.encode(value, enc_hook=_plain, order="deterministic")


def encode_msgpack(value: object) -> bytes:
    """``value`` as msgpack, under the same rules as JSON."""
    return msgspec.msgpack.encode(value, enc_hook=_plain, order="deterministic")


def decode_json(data: bytes | str, kind: type[_T]) -> _T:
    """A value of type ``kind`` from JSON, validated; ``SchemaError`` says what is wrong."""
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_array)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from None


def decode_msgpack(data: bytes, kind: type[_T]) -> _T:
    """A value of type ``kind`` from msgpack, validated; ``SchemaError`` says what is wrong."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_array)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SchemaError(f"not a {getattr(kind, '__name__', kind)}: {error}") from None


def tame(value: Any, depth: int = 0) -> Any:
    """``value`` with whatever cannot be written replaced by the name of its type."""
    if isinstance(value, str):
        return clean_text(value)
    if depth < _DEEPEST and isinstance(value, dict):
        return {clean_text(str(key)): tame(item, depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple):
        return [tame(item, depth + 1) for item in value]
    try:
        encode_json(value)
    except UNWRITABLE:
        return {"$unserialisable": _type_name(value)}
    return value


def _plain(value: object) -> object:
    if isinstance(value, Ints | Floats):
        return value.tobytes()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {_type_name(value)} cannot be written as JSON")


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _array(kind: type, value: object) -> object:
    # JSON has no bytes: there the array is base64 text.
    data = base64.b64decode(value, validate=True) if isinstance(value, str) else value
    if not isinstance(data, bytes) or len(data) % 4:
        raise ValueError(f"{kind.__name__} must be whole 4-byte items")
    if kind is Ints:
        return _frozen(np.frombuffer(data, dtype="<i4"), Ints)
    return _frozen(np.frombuffer(data, dtype="<f4"), Floats)
