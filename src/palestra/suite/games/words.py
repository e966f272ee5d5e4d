"""English words for the games: a common and a rare list, made from SCOWL (see NOTICE and ``data/README.md``)."""

import gzip
from functools import cache
from importlib.resources import files

__all__ = ["common_words", "letters_only", "rare_words"]


@cache
def common_words(length: int) -> tuple[str, ...]:
    """Return everyday words of ``length`` letters (3 to 10), in lower case and alphabetical order."""
    return tuple(word for word in _listed("common") if len(word) == length)


@cache
def rare_words(length: int) -> tuple[str, ...]:
    """Return less usual words of ``length`` letters (3 to 10), none of them common."""
    return tuple(word for word in _listed("rare") if len(word) == length)


def letters_only(answer: str) -> str | None:
    """Return ``answer`` in capitals and without spaces if it holds only English letters, else ``None``."""
    word = "".join(answer.split())
    return word.upper() if word.isascii() and word.isalpha() else None


@cache
def _listed(name: str) -> tuple[str, ...]:
    packed = files("palestra.suite.games").joinpath("data", f"{name}.txt.gz").read_bytes()
    return tuple(gzip.decompress(packed).decode("ascii").split())
