"""The readings of an accepted answer that only the question could tell: see docs/reference/equality.md."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Readings"]

_CHOICES = {
    "pairs": ("points", "intervals"),
    "base": ("written", "asked"),
    "angles": ("either", "written"),
    "percent": ("either", "hundredths", "unit"),
    "log": ("10", "e"),
}


@dataclass(frozen=True)
class Readings:
    """How to read an accepted answer that has several readings."""

    pairs: Literal["points", "intervals"] = "points"
    """What ``(1,2)`` is."""
    base: Literal["written", "asked"] = "written"
    """Whether the base is a part of the answer, or the question names it, so that ``1010_2`` and ``1010`` are equal."""
    angles: Literal["either", "written"] = "either"
    """Whether an angle may be written in degrees or radians, or only in the unit of the accepted answer."""
    percent: Literal["either", "hundredths", "unit"] = "either"
    """Whether a percent sign divides by 100, or the question asks "what percent"; by default either, for numbers above 1."""
    decimals: int | None = None
    """Places from which a decimal equals what rounds to it; by default, only an exactly equal number is equal."""
    log: Literal["10", "e"] = "10"
    r"""The base of ``\log`` without a base."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if self.decimals is not None and (type(self.decimals) is not int or not 1 <= self.decimals <= 30):
            raise ValueError(f"decimals must be a whole number from 1 to 30, got {self.decimals!r}")
