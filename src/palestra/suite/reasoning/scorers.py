"""Scorers that replace those of the library which reward answers that solve nothing.

``SCORERS`` maps generators to them. ``is_finite`` keeps answers that contain NaN or infinity away from every scorer: in Python
``min(1.0, nan)`` is 1.0, so a distance that is not a number would get a full score.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["SCORERS", "is_finite"]

Entry = dict[str, Any]

_NOT_FINITE = re.compile(r"(?<![a-z])s?nan[ij]?(?![a-z])|(?<![a-z])inf(?:inity)?[ij]?(?![a-z])|\d\.?e[+-]?\d{3}", re.IGNORECASE)
_IGNORED = re.compile(r"(?<=\d)[,_\\]+(?=\d)")
"""Characters that scorers and Python ignore in a number: ``1e9_9_9`` is ``1e999``."""
_PROBABILITY = re.compile(r"\d{1,1000}/\d{1,1000}|(?:\d{1,1000}\.?\d{0,1000}|\.\d{1,1000})(?:e[+-]?\d{1,2})?", re.IGNORECASE)
"""Numbers that ``Fraction`` parses fast. For ``1e-999999999`` it would compute 10**999999999."""
_SIGNIFICANT = 3
"""Fewest significant digits of a rounded probability."""


def is_finite(answer: str, right: str) -> bool:
    """Return whether ``answer`` has no infinity, NaN or three-digit exponent, unless the right answer has one too."""
    found, wanted = (_NOT_FINITE.search(_IGNORED.sub("", text)) for text in (answer, right))
    return found is None or wanted is not None


def _probability(answer: str, entry: Entry) -> float:
    """Score a probability: exact, or a decimal that is rounded correctly and has three significant digits.

    The library also pays for the digits before the first difference, so "0" scores 0.9, and accepts anything within 0.0001.
    """
    text = answer.replace(",", "").replace("\\", "").strip()
    scale = 100 if text.endswith("%") else 1
    text = text.rstrip("% ")
    if _PROBABILITY.fullmatch(text) is None:
        return 0.0
    given, meant = Fraction(text), Fraction(**entry["metadata"]["rational"]) * scale
    if given == meant:
        return 1.0
    digits, exponent = Decimal(text).as_tuple()[1:]
    if not given or len(digits) < _SIGNIFICANT or not isinstance(exponent, int):
        return 0.0
    return float(abs(given - meant) <= Fraction(10) ** exponent / 2)


def _whole(answer: str, entry: Entry) -> float:
    """Score the whole answer or nothing. The library pays for a longer text that contains it, such as the given string."""
    return float(answer.strip() == entry["answer"].strip())


def _truth(answer: str, entry: Entry) -> float:
    """Score true or false. The library compares ``bool("False")`` with ``bool("True")``, which are equal."""
    return float(answer.strip().lower() == str(entry["answer"]).lower())


def _assignment(answer: str, entry: Entry) -> float:
    """Score every inhabitant's role, or nothing. The library pays 0.65 for one role of two, so guessing scores 0.55."""
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    read = KnightsKnavesDataset._normalize_answer
    return float(read(answer) == read(entry["answer"]))


def _factors(answer: str, entry: Entry) -> float:
    """Score all prime factors, in any order. The library pays 0.5 for any product of that value, such as the number itself."""
    return float(sorted(re.findall(r"\d+", answer)) == sorted(re.findall(r"\d+", entry["answer"])))


SCORERS: dict[str, Callable[[str, Entry], float]] = {
    "coin_flip": _probability,
    "game_of_life_halting": _truth,
    "knights_knaves": _assignment,
    "prime_factorization": _factors,
    "string_manipulation": _whole,
}
"""Scorers by generator. An answer on which a scorer fails scores 0, as with the library's own."""
