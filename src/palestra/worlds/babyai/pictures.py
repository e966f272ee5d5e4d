"""Pictures: a PNG for models that see, and tiles for people."""

import struct
import zlib
from html import escape
from typing import Any

from palestra.authoring.picture import Tile, drawn_html
from palestra.worlds.babyai.sight import AHEAD, Sight
from palestra.worlds.babyai.world import World

__all__ = ["drawn", "frame_of", "png"]

_TILE = 32
"""Width of a cell in pixels. A frame has 7 by 7 cells."""


def frame_of(world: World) -> bytes:
    """Return what the agent sees as a PNG of 224 by 224 pixels. The agent is in the middle of the last row, facing up."""
    return png(world.grid_env.get_pov_render(_TILE))


def png(pixels: Any) -> bytes:
    """Return an array of rows, columns and 8-bit RGB as a PNG file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def drawn(sight: Sight, mission: str) -> str:
    """Return the view as HTML: the mission and the cells in view, the agent in the middle of the last row."""
    x, y, direction = sight.place
    (ahead_x, ahead_y), right = AHEAD[direction], AHEAD[(direction + 1) % 4]
    rows = []
    for ahead in range(6, -1, -1):
        cells = ((x + ahead_x * ahead + right[0] * side, y + ahead_y * ahead + right[1] * side) for side in range(-3, 4))
        rows.append([Tile("▲", "good") if cell == (x, y) else _tile(sight, cell) for cell in cells])
    return f"<p>{escape(mission)}</p>{drawn_html(rows)}"


_KINDS = {"red": "5", "green": "2", "blue": "1", "purple": "4", "yellow": "near", "grey": "0"}


def _tile(sight: Sight, cell: tuple[int, int]) -> Tile:
    if cell not in sight.cells:
        return Tile("", "quiet")
    thing = sight.cells[cell]
    if thing is None:
        return Tile(".", "quiet")
    return Tile("#", "wall") if thing.type == "wall" else Tile(thing.type, _KINDS[thing.color])
