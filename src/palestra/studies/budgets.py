"""Scores against what a model may spend at test time: turns and samples, before training and after it."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from palestra.durable import write_whole
from palestra.plots.bands import Band, band_curves
from palestra.statistics import Estimate, Score, mean_interval
from palestra.studies.results import BudgetScores, RunResult

__all__ = ["BudgetScore", "Spent", "best_of", "budget_figure", "spent"]


class BudgetScore(NamedTuple):
    """The score with one budget."""

    estimate: Estimate
    """The mean over all tasks and seeds, with its interval."""
    by_seed: list[float]


Spent = Mapping[str, Mapping[str, Mapping[int, BudgetScore]]]
"""``turns`` or ``samples`` → ``before``, or the arm after training → budget → score."""


def best_of(scores: Sequence[float], k: int) -> float:
    """The expected best of ``k`` of the ``scores``, drawn without replacement; for scores of 0 and 1 this is pass@k."""
    ways = math.comb(len(scores), k)
    return sum(score * math.comb(place, k - 1) / ways for place, score in enumerate(sorted(scores)) if place >= k - 1)


def spent(runs: Sequence[RunResult]) -> Spent:
    """The mean score with each budget over all tasks and seeds of one environment; the seeds are strata.

    The arms of one seed start from the same weights, so ``before`` is that of the first arm.
    """
    if not runs:
        return {}
    first = runs[0].arm
    sides = {"before": [(one.seed, one.budgets["before"]) for one in runs if one.arm == first]}
    for arm in dict.fromkeys(one.arm for one in runs):
        sides[arm] = [(one.seed, one.budgets["after"]) for one in runs if one.arm == arm]
    limits = [int(limit) for limit in runs[0].budgets["before"].turns]
    most = len(runs[0].budgets["before"].samples[0])
    counts = [k for k in _doubled(most) if most > 1]
    return {
        kind: {side: {budget: _estimate(found, score, budget) for budget in budgets} for side, found in sides.items()}
        for kind, budgets, score in (("turns", limits, _limited), ("samples", counts, _sampled))
        if budgets
    }


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … and ``most``."""
    return sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most})


def _limited(found: BudgetScores, limit: int) -> Sequence[float]:
    return found.turns[str(limit)]


def _sampled(found: BudgetScores, k: int) -> Sequence[float]:
    return [best_of(scores, k) for scores in found.samples]


def _estimate(
    found: Sequence[tuple[int, BudgetScores]], score: Callable[[BudgetScores, int], Sequence[float]], budget: int
) -> BudgetScore:
    values = [(seed, score(one, budget)) for seed, one in found]
    every = [value for _, row in values for value in row]
    scores = [Score((str(seed),), task, value) for seed, row in values for task, value in enumerate(row)]
    estimate = mean_interval(scores, bounds=(min(0.0, *every), max(1.0, *every)))
    return BudgetScore(estimate, [float(np.mean(row)) for _, row in values])


def budget_figure(path: Path, measure: str, found: Spent) -> None:
    """Draw the scores over turns and over samples."""
    panels = {
        f"{measure} by {kind}": (kind, {side: _band(by_budget) for side, by_budget in sides.items()})
        for kind, sides in found.items()
    }
    write_whole(path, band_curves(panels, "score against turns and samples").encode())


def _band(found: Mapping[int, BudgetScore]) -> Band:
    rows = [(budget, one.estimate.mean, one.estimate.low, one.estimate.high) for budget, one in sorted(found.items())]
    places, mean, low, high = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    return Band(places, mean, low, high)
