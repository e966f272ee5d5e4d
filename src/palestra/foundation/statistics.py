"""Means with intervals, pass@k and distributions, as pure functions of scores.

The unit of sampling is the *task*. Repeats of one task resemble each other, so a task counts once, with the mean of its
repeats; the spread between those means already contains the noise of the repeats. Families (and the environments inside them)
are strata: a suite is a fixed list of families, each with an equal share of the mean, and the tasks drawn from each vary.
``TaskMeans.of`` does this reduction; everything below works on it.

If some of the episodes that were asked for have no score, the scored ones may be a selection: those that ended before the money
did. Then there is no interval but a ``PartialMean``, with the range that holds whatever the others would have scored.

Two intervals for a mean:

- Scores with known bounds get a *score interval*: Wilson's, with the effective number of tasks that the clustered standard
  error implies, and Student's t. It stays inside the bounds, is asymmetric near them, and keeps its coverage where few
  tasks are solved; the percentile bootstrap and the plain t interval do not.
- Scores without bounds get a *bootstrap-t* over tasks within strata.

A sample without any spread does not prove certainty: up to ``1 - (alpha/2)**(1/n)`` of the tasks may still be different, and
the interval includes this. For no success in n tasks that is the exact binomial bound. ``docs/design/statistics.md`` has the
coverage of each method in simulation.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.foundation.seeding import derive

__all__ = [
    "Distribution",
    "Estimate",
    "MissingScore",
    "PartialMean",
    "Score",
    "TaskMeans",
    "bootstrap_means",
    "distribution",
    "mean_interval",
    "mean_of_last",
    "partial_mean",
    "pass_all_k",
    "pass_at_k",
    "score_bounds",
    "student_quantile",
]

Array = npt.NDArray[np.float64]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

# Elements of one block of resampled scores: 32 MB for any number of tasks.
_BLOCK = 4_000_000
# A spread below this fraction of the range comes from rounding in sums.
_ROUNDING = 1e-12


class Score(NamedTuple):
    """One scored episode."""

    path: tuple[str, ...]
    """Its strata, outermost first: ``(family, env)``, or ``()`` if there is only one."""
    task: Hashable
    value: float


class Estimate(msgspec.Struct, frozen=True):
    """A mean and its interval. A limit is infinite if the sample does not determine it."""

    mean: float
    low: float
    high: float
    level: float
    """The nominal coverage of the interval."""
    tasks: int
    """Number of tasks in the sample."""
    episodes: int


class MissingScore(NamedTuple):
    """An episode that was asked for and has no score."""

    path: tuple[str, ...]
    task: Hashable
    bounds: tuple[float, float] | None
    """The lowest and the highest score that it could have got; ``None`` if they are not known."""


class PartialMean(msgspec.Struct, frozen=True):
    """The mean of the episodes that have a score, where others that were asked for have none."""

    mean: float
    """Mean of the scored episodes. They may be a selection, so it is not the mean of all."""
    tasks: int
    """Number of tasks with a score."""
    episodes: int
    """Number of episodes with a score."""
    missing: int
    """Number of episodes that were asked for and have no score."""
    level: float
    low: float | None = None
    """The lower limit of the interval if every missing episode got its lowest score; ``None`` if that is not known."""
    high: float | None = None
    """The upper limit of the interval if every missing episode got its highest score."""

    @property
    def asked(self) -> int:
        """Number of episodes that were asked for."""
        return self.episodes + self.missing


class Distribution(msgspec.Struct, frozen=True):
    """Quantiles of values that are not scores (turns, tokens, dollars, seconds)."""

    count: int
    mean: float
    total: float
    quantiles: dict[str, float]
    """Quantile (as ``"0.95"``) → value."""


@dataclass(frozen=True, eq=False)
class TaskMeans:
    """One mean per task, with its stratum and its share of the overall mean."""

    means: Array
    strata: npt.NDArray[np.intp]
    """Stratum of each task: numbers 0, 1, 2 … without gaps, in ascending order."""
    shares: Array
    """Share of each task; they sum to one."""
    episodes: int

    @classmethod
    def of(cls, scores: Iterable[Score]) -> "TaskMeans":
        """Reduce episodes to tasks. The children of a stratum have equal shares of it."""
        totals: dict[tuple[str, ...], dict[Hashable, list[float]]] = {}
        episodes = 0
        # Evaluations of light games spend much of their time here; most tasks are tried once.
        for path, task, value in scores:
            episodes += 1
            tasks = totals.get(path)
            if tasks is None:
                tasks = totals[path] = {}
            if task in tasks:
                tasks[task].append(value)
            else:
                tasks[task] = [value]
        if not totals:
            raise UsageError("there are no scores, so there is no mean: no episode finished")
        paths = sorted(totals)
        stratum_shares = _equal_shares(paths)
        means = [
            values[0] if len(values) == 1 else math.fsum(values) / len(values)
            for path in paths
            for values in totals[path].values()
        ]
        if not all(map(math.isfinite, means)):
            raise UsageError("every score must be a finite number; some of these are not")
        sizes = [len(totals[path]) for path in paths]
        return cls(
            means=np.array(means),
            strata=np.repeat(np.arange(len(paths)), sizes),
            shares=np.repeat([stratum_shares[path] / size for path, size in zip(paths, sizes, strict=True)], sizes),
            episodes=episodes,
        )

    @cached_property
    def mean(self) -> float:
        """Mean of the strata's means, level by level."""
        return float(self.means @ self.shares)

    @cached_property
    def effective_tasks(self) -> float:
        """Number of equally weighted tasks with the same precision."""
        return float(1.0 / (self.shares @ self.shares))

    @cached_property
    def spread(self) -> "Spread":
        """Standard error of the mean over draws of tasks, and its degrees of freedom (Welch, Satterthwaite)."""
        sizes = np.bincount(self.strata)
        shares = np.bincount(self.strata, self.shares)
        variances = self._task_variances(sizes)
        parts = shares**2 * variances / sizes
        total = float(parts.sum())
        if total <= 0.0:
            return Spread(0.0, max(self.effective_tasks - 1.0, 1.0))
        freedom = 1.0 / float(((parts / total) ** 2 / np.maximum(sizes - 1, 1)).sum())
        return Spread(math.sqrt(total), max(freedom, 1.0))

    def _task_variances(self, sizes: npt.NDArray[np.intp]) -> Array:
        """Return the variance between tasks per stratum. One with a single task takes that of similar ones, or the largest."""
        centres = np.bincount(self.strata, self.means) / sizes
        squares = np.bincount(self.strata, (self.means - centres[self.strata]) ** 2)
        variances = squares / np.maximum(sizes - 1, 1)
        lone = sizes == 1
        if lone.any():
            among = float(centres[lone].var(ddof=1)) if lone.sum() > 1 else 0.0
            variances[lone] = max(among, float(variances[~lone].max(initial=0.0)))
        return variances


class Spread(NamedTuple):
    """How far a mean would move with other tasks."""

    error: float
    """Standard error; 0 if all tasks of every stratum scored the same."""
    freedom: float


def _equal_shares(paths: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], float]:
    children: dict[tuple[str, ...], set[str]] = {}
    for path in paths:
        for depth, name in enumerate(path):
            children.setdefault(path[:depth], set()).add(name)
    return {path: math.prod(1 / len(children[path[:depth]]) for depth in range(len(path))) for path in paths}


# ------------------------------------------------------------------------------------------------------------ intervals


def mean_interval(
    scores: TaskMeans | Iterable[Score],
    *,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Estimate:
    """Return the mean of ``scores`` with a two-sided interval of coverage ``level``.

    ``bounds`` are the lowest and highest possible score of a task; ``None`` if there are none (costs, unbounded rewards).
    ``resamples`` and ``seed`` matter only without bounds.
    """
    sample = scores if isinstance(scores, TaskMeans) else TaskMeans.of(scores)
    if not 0.0 < level < 1.0:
        raise UsageError(f"level must lie between 0 and 1, got {level}")
    if bounds is None:
        low, high = _bootstrap_t(sample, level, resamples, seed)
    else:
        low, high = _bounded(sample, bounds, level)
    return Estimate(sample.mean, low, high, level, len(sample.means), sample.episodes)


def partial_mean(scores: Sequence[Score], missing: Sequence[MissingScore], *, level: float = 0.95) -> PartialMean | None:
    """Return the mean of ``scores``, and the range of the mean over ``scores`` and ``missing``; ``None`` without scores.

    The range reaches from the lower limit of the interval in which every missing episode has its lowest score to the upper
    limit of that in which every one has its highest. So it holds the mean of all episodes, whatever the missing ones score,
    and it covers the tasks that were not drawn with the probability ``level``. The fewer are missing, the nearer it is to the
    ordinary interval. There is no range if the bounds of a missing episode are not known.
    """
    if not scores:
        return None
    sample = TaskMeans.of(scores)
    partial = PartialMean(sample.mean, len(sample.means), sample.episodes, len(missing), level)
    if any(score.bounds is None for score in missing):
        return partial
    worst = [*scores, *(Score(score.path, score.task, score.bounds[0]) for score in missing if score.bounds)]
    best = [*scores, *(Score(score.path, score.task, score.bounds[1]) for score in missing if score.bounds)]
    bounds = score_bounds([*worst, *best])
    low, high = (mean_interval(filled, bounds=bounds, level=level) for filled in (worst, best))
    return msgspec.structs.replace(partial, low=low.low, high=high.high)


def score_bounds(scores: Iterable[Score]) -> tuple[float, float]:
    """Return 0 and 1, or the smallest and largest score where they lie outside."""
    values = [score.value for score in scores]
    return min([0.0, *values]), max([1.0, *values])


def _bounded(sample: TaskMeans, bounds: tuple[float, float], level: float) -> tuple[float, float]:
    floor, ceiling = bounds
    least, most = float(sample.means.min()), float(sample.means.max())
    if not floor < ceiling or least < floor - 1e-9 or most > ceiling + 1e-9:
        raise UsageError(f"scores from {least:g} to {most:g} do not fit the bounds {floor:g} to {ceiling:g}")
    width = ceiling - floor
    if sample.spread.error <= _ROUNDING * width:
        return _without_spread(sample, bounds, level)
    share = min(max((sample.mean - floor) / width, 0.0), 1.0)
    # The number of tasks, scored 0 or 1, with this standard error. Then Wilson's interval, with t for the normal quantile.
    effective = max(share * (1.0 - share), 1e-300) / (sample.spread.error / width) ** 2
    t = student_quantile((1.0 + level) / 2.0, sample.spread.freedom)
    drift = t * t / effective
    centre = (share + drift / 2.0) / (1.0 + drift)
    half = math.sqrt(share * (1.0 - share) * drift + drift * drift / 4.0) / (1.0 + drift)
    return _around(sample.mean, floor + width * (centre - half), floor + width * (centre + half))


def _without_spread(sample: TaskMeans, bounds: tuple[float, float], level: float) -> tuple[float, float]:
    unseen = 1.0 - ((1.0 - level) / 2.0) ** (1.0 / sample.effective_tasks)
    floor, ceiling = bounds
    return _around(sample.mean, sample.mean - unseen * (sample.mean - floor), sample.mean + unseen * (ceiling - sample.mean))


def _around(mean: float, low: float, high: float) -> tuple[float, float]:
    """Return the limits, widened so that rounding does not push one past the mean."""
    return min(low, mean), max(high, mean)


def _bootstrap_t(sample: TaskMeans, level: float, resamples: int, seed: int) -> tuple[float, float]:
    error = sample.spread.error
    if error == 0.0 or len(sample.means) < 2:
        return -math.inf, math.inf
    means, errors = bootstrap_means(sample, resamples, seed)
    # A resample without spread has no pivot. It counts as uninformative.
    away = means - sample.mean
    pivots = np.divide(away, errors, out=np.copysign(np.inf, away), where=errors > 0.0)
    below, above = np.quantile(pivots, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], method="closest_observation")
    return _around(sample.mean, sample.mean - float(above) * error, sample.mean - float(below) * error)


def bootstrap_means(sample: TaskMeans, resamples: int, seed: int) -> tuple[Array, Array]:
    """Return means and standard errors of ``resamples`` draws of tasks, with replacement, within each stratum.

    Only tasks are redrawn, not the repeats inside them: redrawing both would count the noise of the repeats twice.
    """
    rng = derive(seed, "bootstrap")
    means, variances = np.zeros(resamples), np.zeros(resamples)
    for stratum in range(int(sample.strata[-1]) + 1):
        inside = sample.strata == stratum
        values, share = sample.means[inside], float(sample.shares[inside].sum())
        size = len(values)
        for start in range(0, resamples, block := max(1, _BLOCK // size)):
            stop = min(start + block, resamples)
            drawn = values[rng.integers(0, size, (stop - start, size))]
            means[start:stop] += share * drawn.mean(axis=1)
            variances[start:stop] += share**2 * drawn.var(axis=1) / max(size - 1, 1)
    return means, np.sqrt(variances)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution, for any real ``freedom`` of at least 1."""
    if probability < 0.5:
        return -student_quantile(1.0 - probability, freedom)
    if freedom > 400.0:
        z = NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * freedom**2)
    # With t = sqrt(freedom) * tan(angle) the density is cos(angle)**(freedom - 1), smooth on a finite range.
    log_scale = math.lgamma((freedom + 1.0) / 2.0) - math.lgamma(freedom / 2.0) - 0.5 * math.log(math.pi)
    low, high = 0.0, math.pi / 2.0
    for _ in range(60):
        angle = (low + high) / 2.0
        mass = math.exp(log_scale) * angle * float(_WEIGHTS @ np.cos(angle * _NODES) ** (freedom - 1.0))
        low, high = (angle, high) if 0.5 + mass < probability else (low, angle)
    return math.sqrt(freedom) * math.tan((low + high) / 2.0)


def _unit_quadrature(count: int) -> tuple[Array, Array]:
    """Return Gauss-Legendre nodes and weights on 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1.0) / 2.0, weights / 2.0


_NODES, _WEIGHTS = _unit_quadrature(64)


# --------------------------------------------------------------------------------------------- several tries, other values


def pass_at_k(tries: int, successes: int, k: int) -> float:
    """Return the unbiased chance that at least one of ``k`` tries succeeds, over all choices of ``k`` out of ``tries``."""
    _check_tries(tries, successes, k)
    return 1.0 - math.comb(tries - successes, k) / math.comb(tries, k)


def pass_all_k(tries: int, successes: int, k: int) -> float:
    """Return the unbiased chance that all of ``k`` tries succeed (pass^k)."""
    _check_tries(tries, successes, k)
    return math.comb(successes, k) / math.comb(tries, k)


def mean_of_last(ordered: Sequence[float], k: int) -> float:
    """Return the expected value of the last of ``k`` elements that are drawn from ``ordered`` without replacement.

    If ``ordered`` is sorted, this is the expected best of ``k``; for values of 0 and 1 it is then pass@k.
    """
    total = math.comb(len(ordered), k)
    return math.fsum(value * math.comb(index, k - 1) for index, value in enumerate(ordered)) / total


def _check_tries(tries: int, successes: int, k: int) -> None:
    if not 1 <= k <= tries:
        raise UsageError(f"k must lie between 1 and the number of tries ({tries}), got {k}")
    if not 0 <= successes <= tries:
        raise UsageError(f"there cannot be {successes} successes in {tries} tries")


def distribution(values: Sequence[float], quantiles: Sequence[float] = QUANTILES) -> Distribution | None:
    """Return the distribution of ``values``; ``None`` if there are none."""
    if not len(values):
        return None
    array = np.sort(np.asarray(values, dtype=np.float64))
    # Not np.quantile: its first call imports numpy.ma, which takes longer than a small evaluation.
    interpolated = np.interp(np.asarray(quantiles) * (len(array) - 1), np.arange(len(array)), array)
    return Distribution(
        count=len(array),
        mean=float(array.mean()),
        total=float(array.sum()),
        quantiles={f"{q:g}": float(value) for q, value in zip(quantiles, interpolated, strict=True)},
    )
