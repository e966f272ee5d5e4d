"""A test of whether scores have a true mean above ``m``, without assumptions about their distribution (test by betting).

A player with a capital of 1 bets on every score ``x``. With the stake ``f``, a share between 0 and 1, the capital is multiplied
by ``1 + f·(x - m)/(m - low)``, which is never negative because no score is below ``low``. If the true mean is at most ``m``,
the expected value of each factor is at most 1, so by Markov's inequality the capital exceeds ``1/α`` with a probability of at
most ``α``. The capital is divided over a grid of stakes; the p-value is one over the final capital. The test needs neither
normality nor a minimal sample nor a variance, only that the scores are independent and have a lower bound.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ["p_value_mean_above"]

# From small to large. The largest is below 1, because at 1 a single lowest score would lose the whole capital.
_STAKES = np.concatenate([np.geomspace(0.001, 0.1, 10), np.linspace(0.15, 0.95, 17)])


def p_value_mean_above(scores: Sequence[float], mean: float, low: float) -> float:
    """Return the highest probability of such scores if their true mean is at most ``mean``. No score is below ``low``."""
    values = np.asarray(scores, dtype=np.float64)
    if low >= mean or (values.size and values.min() < low):
        raise ValueError(f"scores must have a lower bound below the mean in question: low={low}, mean={mean}")
    gains = (values - mean) / (mean - low)
    log_capital = np.log1p(np.outer(_STAKES, gains)).sum(axis=1)
    peak = log_capital.max()
    log_mixture = peak + np.log(np.exp(log_capital - peak).mean())
    return float(np.exp(-max(log_mixture, 0.0)))
