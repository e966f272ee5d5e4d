"""One question, answered without assumptions: do these scores come from something with a mean above ``m``?

A gambler who believes so bets on every score: with the stake ``f`` (a share between 0 and 1) the capital is multiplied by
``1 + f·(x - m)/(m - low)``, which never falls below zero as no score is below ``low``. If the true mean is ``m`` or less, each
factor is 1 or less on average, so by Markov's inequality the capital ends above ``1/α`` with a chance of ``α`` at most. We
split the first coin over a grid of stakes; the p-value is one over the final capital. No normality, no minimal sample, no
variance: only that scores are independent and have a lower bound.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ["p_value_mean_above"]

# From timid to bold. The boldest stops short of 1, where a single lowest score would cost everything.
_STAKES = np.concatenate([np.geomspace(0.001, 0.1, 10), np.linspace(0.15, 0.95, 17)])


def p_value_mean_above(scores: Sequence[float], mean: float, low: float) -> float:
    """The chance, at most, of scores like these if their true mean were ``mean`` or less. No score is below ``low``."""
    values = np.asarray(scores, dtype=np.float64)
    if low >= mean or (values.size and values.min() < low):
        raise ValueError(f"scores must have a lower bound below the mean in question: low={low}, mean={mean}")
    gains = (values - mean) / (mean - low)
    log_capital = np.log1p(np.outer(_STAKES, gains)).sum(axis=1)
    peak = log_capital.max()
    log_mixture = peak + np.log(np.exp(log_capital - peak).mean())
    return float(np.exp(-max(log_mixture, 0.0)))
