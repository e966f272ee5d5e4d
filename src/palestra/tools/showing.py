"""The answer of a tool as the agent sees it: cut in the middle, without control characters and secrets."""

from collections.abc import Iterable

from palestra.foundation.confidential import HIDDEN, SHORTEST
from palestra.foundation.encoding import clean_text
from palestra.foundation.terminal import terminal_safe

__all__ = ["hide", "presentable"]


def presentable(text: str, limit: int) -> str:
    """``text`` in at most about ``limit`` characters: its beginning and its end, and in between how much was left out."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… [{len(text) - 2 * half} characters left out] …\n{text[len(text) - half :]}"
    return terminal_safe(clean_text(text))


def hide(text: str, secrets: Iterable[str]) -> str:
    """``text`` with every secret masked."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text
