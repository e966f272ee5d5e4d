"""What all drawings share: the colors, and round numbers for the ticks of an axis."""

import math

__all__ = ["PALETTE", "color_of", "round_ticks", "ticks_inside"]

PALETTE = ("#3f74d9", "#e0a13a", "#a06cc4", "#5cb3c4", "#96a13f", "#c46c97", "#8a8f99", "#bf8f5e")
"""No green and no red: reports use these for finished and failed episodes."""


def color_of(number: int) -> str:
    """Return the color of the kind ``number``; after the last color the first one follows."""
    return PALETTE[number % len(PALETTE)]


def round_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers; the first is at most ``low`` and the last at least ``high``."""
    if not high - low > 1e-12 * max(abs(low), abs(high), 1e-280):
        margin = max(0.5, abs(low) / 20)  # beyond 1e16, adding 0.5 does not change a float
        low, high = low - margin, high + margin
    rough = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]


def ticks_inside(low: float, high: float) -> list[float]:
    """Return the round numbers between ``low`` and ``high``, for an axis that ends where the data ends."""
    return [tick for tick in round_ticks(low, high) if low <= tick <= high]
