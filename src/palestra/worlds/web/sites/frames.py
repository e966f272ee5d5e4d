"""Messages between Palestra and the process of a site: a head in JSON, and a body of bytes. Nothing is pickled."""

import json
import struct
from typing import Any, NamedTuple, Protocol

__all__ = ["SIZES", "Frame", "encode", "receive"]

SIZES = struct.Struct("<II")
"""Before every message: the lengths of head and body."""


class Frame(NamedTuple):
    """One message."""

    head: dict[str, Any]
    body: bytes = b""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def encode(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the bytes of a message."""
    text = json.dumps(head).encode()
    return SIZES.pack(len(text), len(body)) + text + body


def receive(incoming: _Readable) -> Frame | None:
    """Read one message from a file. Return ``None`` at its end."""
    sizes = incoming.read(SIZES.size)
    if len(sizes) < SIZES.size:
        return None
    head, body = SIZES.unpack(sizes)
    return Frame(json.loads(incoming.read(head)), incoming.read(body))
