"""Server-sent events, and pieces of text for them."""

from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["DONE", "cut", "event"]

DONE = b"data: [DONE]\n\n"
_PIECE = 1024
"""Characters per event. A reply is complete before the first of its events is sent, so smaller pieces would only cost time."""

_encode = msgspec.json.Encoder().encode


def event(data: Any, name: str = "") -> bytes:
    """Return one event. JSON contains no line break, so ``data`` is one line."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + _encode(data) + b"\n\n"


def cut(text: str) -> Iterator[str]:
    """Yield ``text`` in pieces; nothing for an empty text."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]
