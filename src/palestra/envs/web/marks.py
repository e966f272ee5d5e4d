"""Marks on a screenshot: a frame around each element that the agent can use, with its id.

They are drawn on the picture and not into the page, so no page can see them, move them or imitate one that is not there.
"""

import io
from collections.abc import Sequence

from palestra.envs.web.snapshot import Element, usable
from palestra.errors import MissingExtra, UsageError

__all__ = ["check_picture", "marked"]

_COLORS = ("#c01c28", "#1a5fb4", "#26a269", "#813d9c", "#a05a00", "#0b7285")
_LETTERS = 12
"""The height of an id, in pixels."""


def check_picture(picture: bool | str) -> None:
    """Raise ``UsageError`` if there is no such kind of screenshot."""
    if picture not in (True, False, "marks"):
        raise UsageError(f'picture is True, False or "marks", got {picture!r}')


def marked(picture: bytes, elements: Sequence[Element]) -> bytes:
    """Return a PNG picture of the window with a mark on each usable element of ``elements``."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtra('marks on screenshots need Pillow: pip install "palestra[web]"') from None
    drawn = Image.open(io.BytesIO(picture)).convert("RGB")
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(_LETTERS)
    for one in elements:
        if one.box is None or not usable(one):
            continue
        left, top, wide, high = one.box
        if wide <= 0 or high <= 0 or left >= drawn.width or top >= drawn.height or left + wide <= 0 or top + high <= 0:
            continue
        color = _COLORS[int(one.ref[1:]) % len(_COLORS)]
        pen.rectangle((left, top, left + wide - 1, top + high - 1), outline=color, width=2)
        place = max(0.0, left), max(0.0, top - _LETTERS)  # above the element, so that its text stays readable
        pen.rectangle(pen.textbbox(place, one.ref, font), fill=color)
        pen.text(place, one.ref, fill="white", font=font)
    written = io.BytesIO()
    drawn.save(written, "PNG")
    return written.getvalue()
