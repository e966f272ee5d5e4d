"""Draw tasks by how often the model solves them: ``play.difficulty``.

A task that is always solved, or never, teaches a method that compares the members of a group nothing. A rule turns the running
solve rate of every task into a weight, and tasks are drawn in proportion to it. The tasks of a finite environment are its rows.
The tasks of an environment without end are never repeated, so there the environment itself has a rate, which multiplies its
weight in ``[envs]``: name the levels of a game as environments.

A rate is running because the model changes: each new outcome counts half. What is drawn depends on the seed and on the outcomes
of committed steps only, so a resumed run draws the same tasks.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.foundation.references import Hook
from palestra.recipes.play import DIFFICULTY

__all__ = ["RowOutcome", "SolveRate", "difficulty_weights", "running_rates"]

_K = TypeVar("_K", bound=Hashable)


class RowOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The result of the episodes of one row in one committed step. Failed episodes are in neither number."""

    step: int
    row: int
    episodes: int
    successes: int


class SolveRate(NamedTuple):
    """How often a task was solved lately."""

    episodes: int
    """All episodes of the task so far; 0 if it was never played."""
    rate: float
    """The running share of them that solved it; 0 if it was never played."""


def running_rates(outcomes: Iterable[tuple[_K, int, int]]) -> dict[_K, SolveRate]:
    """Return the rate of every task from its outcomes (task, episodes, successes), oldest first."""
    rates: dict[_K, SolveRate] = {}
    for task, episodes, successes in outcomes:
        if episodes:
            share, before = successes / episodes, rates.get(task)
            rate = share if before is None else (before.rate + share) / 2
            rates[task] = SolveRate(episodes + (before.episodes if before is not None else 0), rate)
    return rates


def pools(
    rates: Sequence[SolveRate], *, easy: float = 0.9, hard: float = 0.1, easy_weight: float = 0.2, hard_weight: float = 0.2
) -> list[float]:
    """Three pools: tasks that are solved at a rate of ``easy`` or more, of ``hard`` or less, and the others with weight 1.

    A task that was never played is one of the others.
    """

    def weight(task: SolveRate) -> float:
        if not task.episodes:
            return 1.0
        return easy_weight if task.rate >= easy else hard_weight if task.rate <= hard else 1.0

    return [weight(task) for task in rates]


def difficulty_weights(rule: Hook | None, rates: Sequence[SolveRate]) -> npt.NDArray[np.float64]:
    """Return the weight of every task under ``rule``; 1 without a rule. All may be 0: ``TrainingTasks`` then ignores them.

    Raises:
        UsageError: The rule does not return one weight per task, of 0 or more.

    """
    if rule is None:
        return np.ones(len(rates))
    chosen: Callable[[Sequence[SolveRate]], Sequence[float]] = DIFFICULTY.load(rule)
    weights = np.asarray(chosen(rates), dtype=np.float64)
    if weights.shape != (len(rates),) or not np.isfinite(weights).all() or (weights < 0).any():
        raise UsageError(
            f"play.difficulty must return one weight per task ({len(rates)}), none below 0; got {weights.tolist()[:8]}"
        )
    return weights
