"""How the tables of a page show runs: a mean before its seeds, an estimate with its interval."""

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from palestra.evaluation.comparison import compare
from palestra.foundation.statistics import Estimate, Score, mean_interval, score_bounds
from palestra.studies.results import RunResult
from palestra.studies.study import Study

__all__ = [
    "by_seed",
    "mean_with_interval",
    "paired_difference",
    "runs_by_arm",
    "seed_list",
    "table",
    "task_scores",
    "with_interval",
]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def runs_by_arm(study: Study, results: Sequence[RunResult]) -> Iterator[tuple[str, str, list[RunResult]]]:
    """The runs of every environment and arm that has any."""
    for name in study.environments:
        for arm in study.arms:
            if runs := [result for result in results if (result.environment, result.arm) == (name, arm)]:
                yield name, arm, runs


def seed_list(runs: Sequence[RunResult]) -> str:
    """The seeds of the runs, each once."""
    return ", ".join(str(seed) for seed in dict.fromkeys(run.seed for run in runs))


def by_seed(values: Sequence[float], form: str) -> str:
    """The mean, then the value of every seed; only the value if there is one seed."""
    shown = " · ".join(form.format(value) for value in values)
    return shown if len(values) == 1 else f"{form.format(float(np.mean(values)))} ({shown})"


def with_interval(estimate: Estimate) -> str:
    """``mean [low, high]``."""
    return f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def mean_with_interval(tasks: Sequence[Hashable], values: Sequence[float]) -> str:
    """The mean over tasks, with its 95 % interval."""
    scores = task_scores(tasks, values)
    return with_interval(mean_interval(scores, bounds=score_bounds(scores)))


def paired_difference(first: Sequence[Score], second: Sequence[Score], bounds: tuple[float, float]) -> str:
    """``first − second``, paired by task, with its 95 % interval."""
    difference = compare(first, second, bounds=bounds).difference
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


def task_scores(tasks: Sequence[Hashable], values: Sequence[float]) -> list[Score]:
    """One score per task."""
    return [Score((), task, float(value)) for task, value in zip(tasks, values, strict=True)]
