"""Where a message ends: a line of JSON, which any Python can write, or bytes that follow their length. Nothing is pickled."""

import asyncio
import json
import struct
from typing import Any, Protocol

__all__ = ["HEADER", "json_line", "read_json_line", "read_sized", "receive_sized", "sized"]

HEADER = struct.Struct("<I")
"""The length before a message of bytes."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def json_line(message: Any) -> bytes:
    """Return ``message`` as a line of JSON."""
    return json.dumps(message).encode() + b"\n"


async def read_json_line(reader: asyncio.StreamReader) -> Any:
    """Read a line of JSON. The limit of the reader is the limit of the line."""
    return json.loads(await reader.readuntil(b"\n"))


def sized(payload: bytes) -> bytes:
    """Return ``payload`` with its length in front."""
    return HEADER.pack(len(payload)) + payload


async def read_sized(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    """Read a message of bytes, of at most ``most_bytes``."""
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > most_bytes:
        raise asyncio.LimitOverrunError(f"a message of {length} bytes, at most {most_bytes} are allowed", 0)
    return await reader.readexactly(length)


def receive_sized(incoming: _Readable) -> bytes | None:
    """Read a message of bytes from a file, as a child does. Return ``None`` at the end, also in the middle of a message."""
    header = incoming.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    payload = incoming.read(length)
    return payload if len(payload) == length else None
