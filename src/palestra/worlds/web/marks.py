"""Marks on a screenshot: a frame around each element that the agent can use, with its id.

They are drawn on the picture and not into the page, so no page can see or move them. A page can draw something that looks like
a mark: the ids in the text of the observation are the ones that count.
"""

import io
import math
from collections.abc import Sequence

from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.worlds.web.snapshot import Element, usable

__all__ = ["check_picture", "marked"]

_COLORS = ("#c01c28", "#1a5fb4", "#26a269", "#813d9c", "#a05a00", "#0b7285")
_LETTERS = 12
"""The height of an id, in pixels."""
_OUTSIDE = 4
"""How far outside of the picture a frame may be drawn, in pixels: more than its line is wide."""


def check_picture(picture: bool | str) -> None:
    """Raise ``UsageError`` if there is no such kind of screenshot."""
    if picture not in (True, False, "marks"):
        raise UsageError(f'picture is True, False or "marks", got {picture!r}')


def marked(picture: bytes, elements: Sequence[Element]) -> bytes:
    """Return a PNG picture of the window with a mark on each usable element of ``elements``."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtra(f"marks on screenshots need Pillow: {how_to_install('web')}") from None
    drawn = Image.open(io.BytesIO(picture)).convert("RGB")
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(_LETTERS)
    for element in elements:
        corners = _clamped(element.box, drawn.width, drawn.height) if element.box is not None and usable(element) else None
        if corners is None:
            continue
        left, top, _, _ = corners
        color = _COLORS[int(element.ref[1:]) % len(_COLORS)]
        pen.rectangle(corners, outline=color, width=2)
        corner = max(0.0, left), max(0.0, top - _LETTERS)  # above the element, so that its text stays readable
        pen.rectangle(pen.textbbox(corner, element.ref, font), fill=color)
        pen.text(corner, element.ref, fill="white", font=font)
    written = io.BytesIO()
    drawn.save(written, "PNG")
    return written.getvalue()


def _clamped(box: tuple[float, float, float, float], width: int, height: int) -> tuple[float, float, float, float] | None:
    """Return the corners of a box, at most a few pixels outside of the picture; nothing if no part of it is in the picture.

    The page chooses the box, and Pillow draws a line pixel by pixel, also where there is no picture.
    """
    left, top, wide, high = box
    right, bottom = left + wide, top + high
    if not all(map(math.isfinite, (left, top, right, bottom))) or wide <= 0 or high <= 0:
        return None
    if left >= width or top >= height or right <= 0 or bottom <= 0:
        return None
    return (max(left, -_OUTSIDE), max(top, -_OUTSIDE), min(right, width + _OUTSIDE) - 1, min(bottom, height + _OUTSIDE) - 1)
