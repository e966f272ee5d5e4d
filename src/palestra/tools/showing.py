"""What a tool said, as it may be shown: cut in the middle, without control characters, without secrets."""

import re
from collections.abc import Iterable

from palestra.encoding import clean_text

__all__ = ["hide", "presentable"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SHORTEST_SECRET = 6
"""Hiding every "a" because a header says "a" would destroy the text and protect nothing."""


def presentable(text: str, limit: int) -> str:
    """``text`` in at most about ``limit`` characters: its beginning and its end, and in between how much was left out."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… [{len(text) - 2 * half} characters left out] …\n{text[len(text) - half :]}"
    return _CONTROLS.sub("\ufffd", clean_text(text.replace("\r\n", "\n")))


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret masked."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "[hidden]")
    return text
