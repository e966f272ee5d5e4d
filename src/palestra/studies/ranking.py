"""Which arm is best over several environments: mean ranks, probabilities of improvement, performance profiles.

All intervals come from one bootstrap. Each resample draws seeds with replacement (for each environment and arm) and held-out
tasks with replacement (for each environment, the same for all arms, which keeps the pairing). With few seeds such intervals are
rough; the page says how many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.studies.results import RunResult

__all__ = ["Interval", "PerformanceProfile", "Ranking", "Scores", "profile", "rank_arms", "scores_of"]

Array = npt.NDArray[np.float64]
Scores = Mapping[str, Mapping[str, Array]]
"""Environment → arm → score, one row per seed and one column per task."""

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Ranking:
    """The arms of a study over all its environments."""

    ranks: Mapping[str, Interval]
    """Arm → mean rank over the environments; 1 is best, and arms that tie share a rank."""
    improvement: Mapping[tuple[str, str], Interval]
    """(first, second) → the probability that a run of ``first`` beats one of ``second``, mean over environments."""
    seeds: int
    """The smallest number of seeds of any arm in any environment."""


class PerformanceProfile(NamedTuple):
    """The share of runs that reach each threshold, with its 95 % interval."""

    share: Array
    low: Array
    high: Array


def scores_of(results: Sequence[RunResult], measure: str) -> Scores:
    """The scores after training.

    Raises:
        UsageError: An arm has no run in some environment, so that it cannot be ranked.
    """
    scores: dict[str, dict[str, list[list[float]]]] = {}
    for result in results:
        scores.setdefault(result.environment, {}).setdefault(result.arm, []).append(result.after[measure])
    arms = {arm for by_arm in scores.values() for arm in by_arm}
    for environment, by_arm in scores.items():
        if missing := sorted(arms - set(by_arm)):
            raise UsageError(f"{environment} has no run of {', '.join(missing)}: make these runs, or rank fewer arms")
    return {env: {arm: np.asarray(rows, dtype=np.float64) for arm, rows in by_arm.items()} for env, by_arm in scores.items()}


def rank_arms(scores: Scores, *, resamples: int = RESAMPLES, seed: int = 0) -> Ranking:
    """Mean ranks and probabilities of improvement, with intervals."""
    arms = list(next(iter(scores.values())))
    rng = derive(seed, "ranking")
    drawn = [_means(scores, rng) for _ in range(resamples)]
    ranks = np.stack([_mean_ranks(means, arms) for means in drawn])
    point = _run_means(scores)
    improvement = {}
    for first in arms:
        for second in arms:
            if first != second:
                samples = np.array([_improvement(means, first, second) for means in drawn])
                improvement[first, second] = _interval(_improvement(point, first, second), samples)
    observed = _mean_ranks(point, arms)
    return Ranking(
        ranks={arm: _interval(float(observed[at]), ranks[:, at]) for at, arm in enumerate(arms)},
        improvement=improvement,
        seeds=min(len(rows) for by_arm in scores.values() for rows in by_arm.values()),
    )


def profile(scores: Scores, thresholds: Array, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, PerformanceProfile]:
    """Arm → the share of its runs, over environments and seeds, that score at least each of ``thresholds``."""
    rng = derive(seed, "profile")
    shares = _shares(_run_means(scores), thresholds)
    drawn = [_shares(_means(scores, rng), thresholds) for _ in range(resamples)]
    profiles = {}
    for arm, share in shares.items():
        low, high = np.quantile(np.stack([resample[arm] for resample in drawn]), (0.025, 0.975), axis=0)
        profiles[arm] = PerformanceProfile(share, low, high)
    return profiles


_RunMeans = dict[str, dict[str, Array]]
"""Environment → arm → the mean score of each run."""


def _run_means(scores: Scores) -> _RunMeans:
    return {env: {arm: rows.mean(axis=1) for arm, rows in by_arm.items()} for env, by_arm in scores.items()}


def _shares(means: _RunMeans, thresholds: Array) -> dict[str, Array]:
    """Arm → the share of its runs that score at least each of ``thresholds``."""
    arms = list(next(iter(means.values())))
    runs = {arm: np.concatenate([by_arm[arm] for by_arm in means.values()]) for arm in arms}
    return {arm: (values[None, :] >= thresholds[:, None]).mean(axis=1) for arm, values in runs.items()}


def _means(scores: Scores, rng: np.random.Generator) -> _RunMeans:
    """The mean score of every run in one resample."""
    out: _RunMeans = {}
    for environment, by_arm in scores.items():
        width = next(iter(by_arm.values())).shape[1]
        tasks = rng.integers(0, width, width)
        out[environment] = {
            arm: rows[rng.integers(0, len(rows), len(rows))][:, tasks].mean(axis=1) for arm, rows in by_arm.items()
        }
    return out


def _mean_ranks(means: _RunMeans, arms: Sequence[str]) -> Array:
    """The mean rank of each arm over the environments."""
    table = np.array([[by_arm[arm].mean() for arm in arms] for by_arm in means.values()])
    better = (table[:, None, :] > table[:, :, None]).sum(axis=2)
    equal = (table[:, None, :] == table[:, :, None]).sum(axis=2)
    return np.asarray((1.0 + better + (equal - 1) / 2).mean(axis=0), dtype=np.float64)


def _improvement(means: _RunMeans, first: str, second: str) -> float:
    """The chance that a run of ``first`` beats a run of ``second``; a tie counts half."""
    shares = []
    for by_arm in means.values():
        ours, theirs = by_arm[first][:, None], by_arm[second][None, :]
        shares.append(float(np.mean((ours > theirs) + 0.5 * (ours == theirs))))
    return float(np.mean(shares))


def _interval(value: float, samples: Array) -> Interval:
    low, high = np.quantile(samples, (0.025, 0.975))
    return Interval(value, float(low), float(high))
