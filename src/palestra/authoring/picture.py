"""Boards as pictures for people: rows of tiles, drawn as HTML for a page or as SVG for a document.

A game's ``picture`` returns the tiles; by default they are derived from its ``view``, so a picture never shows more than the
player sees. The text of a game is only shown: it is escaped, and there are no scripts, links or images. Every tile has its own
colors, so that it is readable on a light page and on a dark one.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Row", "Tile", "drawn_html", "drawn_svg", "rows_of"]

_LONGEST_MARK = 5
"""Most characters of a word that can be a tile."""

_FEWEST_COLUMNS = 5
_EMPTY = (".", "_", "__", "-", "?")
_RULED = re.compile(r"[-+]+")

_INK, _QUIET = "#fff", "#8390a2"
_COLOURS = {
    "good": "#1a7f4e",
    "near": "#8f5b0c",
    "bad": "#5f6875",
    "wall": "#4b5563",
    "0": "#5f6875",
    "1": "#2b66cf",
    "2": "#1a7f4e",
    "3": "#c2410c",
    "4": "#9320a5",
    "5": "#be123c",
    "6": "#0e7490",
    "7": "#8f5b0c",
}
"""The background of each kind of tile; its text is white."""


class Tile(NamedTuple):
    """One cell of a board."""

    text: str
    kind: str = ""
    """A key of the colors, ``quiet`` for an empty tile, or ``label`` for a name; by default the text decides."""

    @property
    def color(self) -> str:
        """The background; empty for tiles without one."""
        if self.kind in ("quiet", "label"):
            return ""
        return _COLOURS[self.kind or _kind_of(self.text)]


Row = str | Sequence[Tile]
"""A line of a picture: text, or tiles."""


def _kind_of(text: str) -> str:
    if text == "#":
        return "wall"
    if text.isascii() and text.isdecimal():
        number = int(text[:9])
        return str((number.bit_length() if number > 15 else number) % 8)
    return str(sum(map(ord, text)) % 8)


def rows_of(view: str) -> list[Row]:
    """Return the rows of a board written as text: lines of short words become tiles, all others stay text."""
    rows = [_row(line) for line in view.splitlines() if not _RULED.fullmatch(line)]
    for line, row in enumerate(rows):
        if _is_count(row, 0):  # column numbers of a grid whose rows are numbered as well
            rows[line] = [Tile("", "label"), *_labels(row)]
            rows[line + 1 :] = [[*_labels(below[:1]), *below[1:]] for below in rows[line + 1 :] if not isinstance(below, str)]
            break
    if rows and _is_count(rows[-1], 1):
        rows[-1] = _labels(rows[-1])
    return rows


def _row(line: str) -> Row:
    head, colon, rest = line.partition(": ")
    rest, bracket, note = (rest if colon else line).partition(" (")
    marks = rest.replace("|", " ").split()
    if not marks or line.endswith(":") or max(map(len, marks)) > _LONGEST_MARK or (not colon and len(marks) < 2):
        return line.strip()
    label = [Tile(head, "label")] if colon else []
    return [*label, *map(_tile, marks), *([Tile(f"({note}", "label")] if bracket else [])]


def _tile(mark: str) -> Tile:
    if mark in _EMPTY:
        return Tile(mark, "quiet")
    return Tile(mark[1:-1], "good") if mark.startswith("[") else Tile(mark)


def _is_count(row: Row, start: int) -> bool:
    """Whether a row numbers the columns from ``start`` on."""
    if isinstance(row, str) or len(row) < _FEWEST_COLUMNS:
        return False
    return [tile.text for tile in row] == [str(start + column) for column in range(len(row))]


def _labels(row: Row) -> list[Tile]:
    return [Tile(tile.text, "label") for tile in row if isinstance(tile, Tile)]


def drawn_html(rows: Sequence[Row]) -> str:
    """Return the picture as one self-contained ``<div>``."""
    return f'<div style="font:600 14px/27px ui-monospace,monospace">{"".join(map(_html_row, rows))}</div>'


def _html_row(row: Row) -> str:
    if isinstance(row, str):
        return f'<div style="font-weight:400;white-space:pre-wrap">{escape(row)}</div>'
    return f'<div style="display:flex;gap:2px;margin:2px 0">{"".join(map(_html_tile, row))}</div>'


def _html_tile(tile: Tile) -> str:
    look = f"background:{tile.color};color:{_INK}" if tile.color else f"color:{_QUIET}"
    if tile.kind == "quiet":
        look += f";box-shadow:inset 0 0 0 1px {_QUIET}66"
    return f'<span style="min-width:27px;padding:0 4px;text-align:center;border-radius:5px;{look}">{escape(tile.text)}</span>'


_STEP, _WIDE = 31, 9
"""Pixels from tile to tile, and per letter."""


def drawn_svg(rows: Sequence[Row]) -> str:
    """Return the picture as an SVG image."""
    parts = []
    width = 0
    for number, row in enumerate(rows):
        top = number * _STEP
        if isinstance(row, str):
            parts.append(f'<text x="2" y="{top + 20}" text-anchor="start" fill="{_QUIET}">{escape(row)}</text>')
            width = max(width, len(row) * _WIDE + 4)
            continue
        left = 0
        for tile in row:
            size = max(_STEP, len(tile.text) * _WIDE + 12)
            parts.append(_svg_tile(tile, left, top, size))
            left += size
        width = max(width, left)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{len(rows) * _STEP}" '
    return head + 'font-family="monospace" font-size="15" text-anchor="middle">\n' + "\n".join(parts) + "\n</svg>\n"


def _svg_tile(tile: Tile, left: int, top: int, size: int) -> str:
    ground = f'fill="{tile.color}"' if tile.color else f'fill="none" stroke="{_QUIET}" stroke-opacity="0.4"'
    box = f'<rect x="{left + 1}" y="{top + 1}" width="{size - 3}" height="{_STEP - 3}" rx="5" {ground}/>'
    word = f'<text x="{left + size // 2}" y="{top + 20}" fill="{_INK if tile.color else _QUIET}">{escape(tile.text)}</text>'
    return word if tile.kind == "label" else box + word
