"""Is A better than B? A paired comparison over the tasks that have a score in both runs.

Pairing removes the difficulty of the tasks, which both runs share and which is most of the noise. The p-value comes from a sign
test that flips whole tasks, so the episodes of one task move together. Under the null hypothesis, either policy could have got
either score. The *smallest visible difference* is the difference that the comparison could have detected; without it, "no
significant difference" says nothing. With several families, the p-values are corrected for multiple testing (Holm).

If episodes that one of the runs was asked for have no score, the tasks that both have scored may be a selection. Then there is
no p-value and no interval, but the range of the difference over all tasks, whatever the missing episodes score.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import (
    Estimate,
    MissingScore,
    PartialMean,
    Score,
    TaskMeans,
    mean_interval,
    partial_mean,
    student_quantile,
)

__all__ = [
    "Comparison",
    "FamilyComparison",
    "PartialComparison",
    "compare",
    "compare_partial",
    "holm",
    "visible_difference",
]

# Up to this many tasks that differ, all sign patterns are tried and the p-value is exact.
_EXACT_TASKS = 14
_BLOCK = 4_000_000


class FamilyComparison(msgspec.Struct, frozen=True):
    """The comparison inside one family."""

    difference: Estimate
    p_value: float
    corrected_p_value: float
    """The p-value after Holm's correction over the families: compare it with 0.05."""


class Comparison(msgspec.Struct, frozen=True):
    """A minus B, over the common tasks."""

    first: Estimate
    """The score of A over the common tasks."""
    second: Estimate
    """The score of B over the common tasks."""
    difference: Estimate
    p_value: float
    smallest_visible: float
    """The true difference that this comparison detects with a probability of 80 %."""
    only_first: int
    """Tasks left out because only A has a score for them."""
    only_second: int
    families: dict[str, FamilyComparison]


class PartialComparison(msgspec.Struct, frozen=True):
    """A minus B, where episodes that at least one of them was asked for have no score."""

    first: PartialMean
    """The score of A over what it has played."""
    second: PartialMean
    difference: PartialMean
    """The mean difference over the tasks that both have scored, and the range of that over all. ``episodes`` are tasks."""


def compare_partial(
    first: Sequence[Score],
    second: Sequence[Score],
    missing_first: Sequence[MissingScore],
    missing_second: Sequence[MissingScore],
    *,
    level: float = 0.95,
) -> PartialComparison:
    """Compare two runs of which at least one lacks scores. Both were asked for the same tasks.

    Raises:
        UsageError: No task has a score in both runs.
    """
    ours, theirs = _by_task(first), _by_task(second)
    common = [Score(*key, ours[key] - theirs[key]) for key in ours if key in theirs]
    if not common:
        raise UsageError(_NOTHING_IN_COMMON)
    our_mean = partial_mean(first, missing_first, level=level)
    their_mean = partial_mean(second, missing_second, level=level)
    assert our_mean is not None
    assert their_mean is not None
    our_limits, their_limits = _limits(first, missing_first), _limits(second, missing_second)
    tasks = {**our_limits, **their_limits}
    difference = _mean_difference(common, len(tasks) - len(common), level)
    worst, best = [], []
    for path, task in tasks:
        our_limit, their_limit = our_limits.get((path, task)), their_limits.get((path, task))
        if our_limit is None or their_limit is None:
            return PartialComparison(our_mean, their_mean, difference)
        worst.append(Score(path, task, our_limit[0] - their_limit[1]))
        best.append(Score(path, task, our_limit[1] - their_limit[0]))
    reach = max(1.0, *(abs(score.value) for score in (*worst, *best)))
    low, high = (mean_interval(filled, bounds=(-reach, reach), level=level) for filled in (worst, best))
    return PartialComparison(our_mean, their_mean, msgspec.structs.replace(difference, low=low.low, high=high.high))


def _mean_difference(common: Sequence[Score], missing: int, level: float) -> PartialMean:
    sample = TaskMeans.of(common)
    return PartialMean(sample.mean, len(common), len(common), missing, level)


def _limits(
    scores: Iterable[Score], missing: Iterable[MissingScore]
) -> dict[tuple[tuple[str, ...], Hashable], tuple[float, float] | None]:
    """Task → the lowest and the highest mean that it can have; ``None`` if they are not known."""
    values: dict[_TaskKey, list[tuple[float, float] | None]] = {}
    for path, task, value in scores:
        values.setdefault((path, task), []).append((value, value))
    for path, task, bounds in missing:
        values.setdefault((path, task), []).append(bounds)
    return {key: _mean_of_bounds(each) for key, each in values.items()}


def _mean_of_bounds(each: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    known_bounds = [bounds for bounds in each if bounds is not None]
    if len(known_bounds) < len(each):
        return None
    return math.fsum(low for low, _ in known_bounds) / len(known_bounds), math.fsum(high for _, high in known_bounds) / len(
        known_bounds
    )


_NOTHING_IN_COMMON = "the two runs have no scored task in common: compare runs over the same tasks and seed"


def compare(
    first: Iterable[Score],
    second: Iterable[Score],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """The mean difference ``first - second`` with interval, p-value and smallest visible difference, overall and by family.

    The family is the outermost name of a score's path.
    """
    ours, theirs = _by_task(first), _by_task(second)
    common = [key for key in ours if key in theirs]
    if not common:
        raise UsageError(_NOTHING_IN_COMMON)
    differences = [Score(path, task, ours[path, task] - theirs[path, task]) for path, task in common]
    reach = bounds[1] - bounds[0]
    overall = _Paired(differences, reach, level, resamples, seed)
    families = sorted({score.path[0] for score in differences if score.path})
    parts = [
        _Paired([score for score in differences if score.path[0] == family], reach, level, resamples, seed)
        for family in families
    ]
    corrected = holm([part.p_value for part in parts])
    return Comparison(
        first=_mean(ours, common, bounds, level),
        second=_mean(theirs, common, bounds, level),
        difference=overall.estimate,
        p_value=overall.p_value,
        smallest_visible=overall.smallest_visible(),
        only_first=len(ours) - len(common),
        only_second=len(theirs) - len(common),
        families={
            family: FamilyComparison(part.estimate, part.p_value, q)
            for family, part, q in zip(families, parts, corrected, strict=True)
        },
    )


class _Paired:
    """Differences of one family or of all of them."""

    def __init__(self, differences: Sequence[Score], reach: float, level: float, resamples: int, seed: int) -> None:
        self._sample = TaskMeans.of(differences)
        self._reach = reach
        self._level = level
        self.estimate = mean_interval(self._sample, bounds=(-reach, reach), level=level)
        self.p_value = _sign_flip(self._sample.means * self._sample.shares, resamples, seed)

    def smallest_visible(self) -> float:
        error, freedom = self._sample.spread
        # Without any spread, assume that one task differs by as much as possible.
        error = error or self._reach / self._sample.effective_tasks
        return min(visible_difference(error, freedom, self._sample.effective_tasks, level=self._level), self._reach)


def visible_difference(error: float, freedom: float, tasks: float, *, level: float = 0.95, power: float = 0.8) -> float:
    """Return the true difference that a paired comparison over ``tasks`` tasks detects with the probability ``power``.

    ``error`` is the standard error of the mean difference and ``freedom`` its degrees of freedom. Too few tasks detect no
    difference: the result is infinite.
    """
    bound, missed = student_quantile((1.0 + level) / 2.0, freedom), student_quantile(power, freedom)
    # A difference d, in standard errors, is found if it passes the bound of the flipped signs. That bound grows with d, as
    # the flipped parts spread around zero and not around d: the d sought solves d - missed = bound * sqrt(1 + d² / tasks).
    growth = bound**2 / tasks
    if growth >= 1.0:
        return math.inf
    return error * (missed + math.sqrt(growth * missed**2 + (1.0 - growth) * bound**2)) / (1.0 - growth)


_TaskKey = tuple[tuple[str, ...], Hashable]


def _mean(scores: Mapping[_TaskKey, float], tasks: Iterable[_TaskKey], bounds: tuple[float, float], level: float) -> Estimate:
    return mean_interval([Score(path, task, scores[path, task]) for path, task in tasks], bounds=bounds, level=level)


def _by_task(scores: Iterable[Score]) -> dict[_TaskKey, float]:
    values: dict[_TaskKey, list[float]] = {}
    for path, task, value in scores:
        values.setdefault((path, task), []).append(value)
    return {key: math.fsum(of_task) / len(of_task) for key, of_task in values.items()}


def _sign_flip(parts: npt.NDArray[np.float64], resamples: int, seed: int) -> float:
    """The probability of a sum at least as far from zero if every part had a random sign."""
    parts = parts[parts != 0.0]
    # Patterns that tie with the observed one count too, in spite of rounding.
    observed = abs(float(parts.sum())) - 1e-12 * float(np.abs(parts).sum())
    if len(parts) <= _EXACT_TASKS:
        patterns = np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1
        return float(np.mean(np.abs((2.0 * patterns - 1.0) @ parts) >= observed))
    rng = derive(seed, "sign flips")
    reached = 0
    for start in range(0, resamples, block := max(1, _BLOCK // len(parts))):
        flips = rng.integers(0, 2, (min(block, resamples - start), len(parts)), dtype=np.int8)
        reached += int(np.count_nonzero(np.abs((2.0 * flips - 1.0) @ parts) >= observed))
    # The observed pattern is one of all patterns, so the estimate is never zero and the test keeps its level.
    return (reached + 1) / (resamples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected p-values: rejecting those up to ``alpha`` gives any false positive with a probability of at most ``alpha``."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = running
    return corrected
