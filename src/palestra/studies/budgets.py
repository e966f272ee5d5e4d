"""Scores against what a model may spend at test time: turns and samples, before training and after it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from palestra.durable import write_whole
from palestra.errors import UsageError
from palestra.evaluation.scaling import estimate_band
from palestra.foundation.statistics import Estimate, Score, mean_interval, mean_of_last, score_bounds
from palestra.plots.bands import Band, band_curves
from palestra.studies.results import BudgetScores, RunResult

__all__ = ["BudgetScore", "Spent", "budget_figure", "spent"]


class BudgetScore(NamedTuple):
    """The score with one budget."""

    estimate: Estimate
    """The mean over all tasks and seeds, with its interval."""
    by_seed: list[float]


Spent = Mapping[str, Mapping[str, Mapping[int, BudgetScore]]]
"""``turns`` or ``samples`` → ``before``, or the arm after training → budget → score."""


def spent(runs: Sequence[RunResult]) -> Spent:
    """The mean score with each budget over all tasks and seeds of one environment.

    All seeds play the same tasks, so each task counts once, with the mean of its seeds. The arms of one seed start from the
    same weights, so ``before`` is that of any of them.

    Raises:
        UsageError: The runs had different budgets.
    """
    if not runs:
        return {}
    budgets = {_budgets_of(scores) for run in runs for scores in run.budgets.values()}
    if len(budgets) > 1:
        raise UsageError(
            "the runs of this study had different budgets: remove the results of the earlier ones to make them again"
        )
    ((limits, most),) = budgets
    each_seed = {run.seed: run for run in runs}.values()
    sides = {"before": [(run, run.budgets["before"]) for run in each_seed]}
    for arm in dict.fromkeys(run.arm for run in runs):
        sides[arm] = [(run, run.budgets["after"]) for run in runs if run.arm == arm]
    counts = [k for k in _doubled(most) if most > 1]
    return {
        kind: {side: {budget: _estimate(scores, score, budget) for budget in budgets} for side, scores in sides.items()}
        for kind, budgets, score in (("turns", limits, _limited), ("samples", counts, _sampled))
        if budgets
    }


def _budgets_of(scores: BudgetScores) -> tuple[tuple[int, ...], int]:
    """The limits of turns, and the number of samples."""
    return tuple(int(limit) for limit in scores.turns), len(scores.samples[0])


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … and ``most``."""
    return sorted({*(2**power for power in range(most.bit_length()) if 2**power <= most), most})


def _limited(scores: BudgetScores, limit: int) -> Sequence[float]:
    return scores.turns[str(limit)]


def _sampled(scores: BudgetScores, k: int) -> Sequence[float]:
    return [mean_of_last(sorted(of_task), k) for of_task in scores.samples]


def _estimate(
    runs: Sequence[tuple[RunResult, BudgetScores]], score: Callable[[BudgetScores, int], Sequence[float]], budget: int
) -> BudgetScore:
    values = [(run, score(budget_scores, budget)) for run, budget_scores in runs]
    scores = [
        Score((), task, value) for run, row in values for task, value in zip(run.asked or range(len(row)), row, strict=True)
    ]
    estimate = mean_interval(scores, bounds=score_bounds(scores))
    return BudgetScore(estimate, [float(np.mean(row)) for _, row in values])


def budget_figure(path: Path, measure: str, by_kind: Spent) -> None:
    """Draw the scores over turns and over samples."""

    def band(scores: Mapping[int, BudgetScore]) -> Band:
        return estimate_band({budget: scores[budget].estimate for budget in sorted(scores)})

    panels = {
        f"{measure} by {kind}": (kind, {side: band(scores) for side, scores in scores_by_side.items()})
        for kind, scores_by_side in by_kind.items()
    }
    write_whole(path, band_curves(panels, "score against turns and samples").encode())
