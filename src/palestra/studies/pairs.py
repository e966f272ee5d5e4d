"""Two arms of a study side by side: after all their steps, and after equal seconds."""

import itertools
from collections.abc import Sequence

import numpy as np

from palestra.evaluation.comparison import compare
from palestra.foundation.statistics import Score, score_bounds
from palestra.studies.markdown import by_seed, paired_difference, table, task_scores
from palestra.studies.results import RunResult
from palestra.studies.study import ArmPair, Study

__all__ = ["equal_seconds_table", "pair_line"]

_ENOUGH_SEEDS = 3
"""The smallest number of seeds for an interval over seeds."""

_BothRuns = tuple[RunResult, RunResult]
"""A run of each arm of a pair, with the same environment and seed."""


def _runs_of_both(results: Sequence[RunResult], pair: ArmPair) -> list[_BothRuns]:
    second = {(result.environment, result.seed): result for result in results if result.arm == pair.second}
    return [
        (result, second[result.environment, result.seed])
        for result in results
        if result.arm == pair.first and (result.environment, result.seed) in second
    ]


def pair_line(results: Sequence[RunResult], pair: ArmPair) -> str:
    """``first − second`` after training: overall with its interval, and for every environment and seed.

    All seeds play the same tasks, so each task counts once, with the mean of its seeds. This interval says how well the runs
    are measured. The interval over seeds says how much other seeds may differ.
    """
    named = f"{pair.first} − {pair.second}, {pair.measure}"
    runs = _runs_of_both(results, pair)
    if not runs:
        return f"{named}: no run of both with the same environment and seed."
    bounds = score_bounds(score for result in results for score in _task_scores(result, pair.measure))
    by_environment = {
        name: [both for both in runs if both[0].environment == name]
        for name in dict.fromkeys(result.environment for result, _ in runs)
    }
    parts = [_over_tasks(runs, pair.measure, bounds)]
    for name, env_runs in by_environment.items():
        over_tasks = f"{_over_tasks(env_runs, pair.measure, bounds)}, " if len(by_environment) > 1 else ""
        parts.append(f"{name} {over_tasks}by seed {_over_seeds(env_runs, pair.measure, bounds)}")
    return f"{named}: {'; '.join(parts)}"


def _over_tasks(runs: Sequence[_BothRuns], measure: str, bounds: tuple[float, float]) -> str:
    first, second = ([score for run in side for score in _task_scores(run, measure)] for side in zip(*runs, strict=True))
    return paired_difference(first, second, bounds)


def _over_seeds(runs: Sequence[_BothRuns], measure: str, bounds: tuple[float, float]) -> str:
    """The difference of every seed, and the interval of their mean if there are enough seeds for one."""
    first, second = (
        [Score((), run.seed, float(np.mean(run.after[measure]))) for run in side] for side in zip(*runs, strict=True)
    )
    each = ", ".join(f"{ours.value - theirs.value:+.3f}" for ours, theirs in zip(first, second, strict=True))
    if len(runs) < _ENOUGH_SEEDS:
        return each
    difference = compare(first, second, bounds=bounds).difference
    return f"{each}, over seeds [{difference.low:+.3f}, {difference.high:+.3f}]"


def _task_scores(run: RunResult, measure: str) -> list[Score]:
    values = run.after[measure]
    return [score._replace(path=(run.environment,)) for score in task_scores(range(len(values)), values)]


def equal_seconds_table(study: Study, results: Sequence[RunResult]) -> str:
    """What both arms of a pair had reached when the faster one had made all its steps, and the difference over seeds."""
    if not study.equal_seconds:
        return ""
    rows: list[list[str]] = []
    left_out: list[str] = []
    for pair, name in itertools.product(study.compare, study.environments):
        runs = _runs_of_both([result for result in results if result.environment == name], pair)
        values = {first.seed: _when_faster_ended(first, second, study.equal_seconds) for first, second in runs}
        reached = {seed: both for seed, both in values.items() if both is not None}
        left_out += [f"{pair.first} − {pair.second}, {name}, seed {seed}" for seed in study.seeds if seed not in reached]
        if reached:
            ours, theirs = ([Score((), seed, both[side]) for seed, both in reached.items()] for side in (0, 1))
            shown = [by_seed([score.value for score in side], "{:.3f}") for side in (ours, theirs)]
            difference = paired_difference(ours, theirs, score_bounds([*ours, *theirs]))
            rows.append([name, f"{pair.first} − {pair.second}", *shown, difference, ", ".join(map(str, reached))])
    head = ["environment", "pair", f"{study.equal_seconds} of the first when the faster one ended", "of the second"]
    parts = [table([*head, "difference over seeds", "seeds"], rows)] if rows else []
    if left_out:
        parts.append(f"Left out, because a run has no {study.equal_seconds} by then: {'; '.join(left_out)}")
    return "\n\n".join(parts)


def _when_faster_ended(first: RunResult, second: RunResult, curve: str) -> tuple[float, float] | None:
    """The last values of the curve that both runs had when the faster one ended; ``None`` if a run had none."""
    seconds = min(sum(run.made.step_seconds) for run in (first, second))
    ours, theirs = (_value_within(run, curve, seconds) for run in (first, second))
    return None if ours is None or theirs is None else (ours, theirs)


def _value_within(run: RunResult, curve: str, seconds: float) -> float | None:
    """The last value of the curve that the run had after ``seconds`` of training; ``None`` if it had none yet."""
    ends = np.cumsum(run.made.step_seconds)
    values = [value for value, end in zip(run.curves.get(curve, []), ends, strict=False) if end <= seconds + 1e-6]
    return next((value for value in reversed(values) if value is not None), None)
