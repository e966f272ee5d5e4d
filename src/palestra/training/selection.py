"""Which episodes to imitate, and which to prefer to which: what turns a run into data for supervised and preference training.

Episodes of one group played the same task; that is what makes them comparable. A failed episode has no reward: it is never
chosen, and nothing is preferred to it. Standard library only.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from palestra.errors import UsageError
from palestra.trajectory import Trajectory

__all__ = ["Pair", "best_of_group", "preference_pairs", "solved"]


class Pair(NamedTuple):
    """Two tries at one task, of which the first is the better."""

    chosen: Trajectory
    rejected: Trajectory

    @property
    def margin(self) -> float:
        """By how much, in reward."""
        assert self.chosen.reward is not None
        assert self.rejected.reward is not None
        return self.chosen.reward - self.rejected.reward


def solved(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Those that the environment called a success."""
    return (one for one in trajectories if one.success)


def best_of_group(trajectories: Iterable[Trajectory], *, least: float = 0.0) -> list[Trajectory]:
    """The best try at every task, if its reward is above ``least``. Of equals the one with the fewest turns, then the first."""
    best = [min(group, key=_rank) for group in _groups(trajectories)]
    return [one for one in best if one.reward is not None and one.reward > least]


def preference_pairs(trajectories: Iterable[Trajectory], *, margin: float = 0.0, most: int = 1) -> list[Pair]:
    """For every task up to ``most`` pairs whose rewards differ by more than ``margin``: best and worst, then inwards.

    No try is in two pairs, so no single episode weighs more than once.
    """
    if margin < 0 or most < 1:
        raise UsageError(f"a margin is not negative and there is at least one pair a task, got {margin} and {most}")
    pairs = []
    for group in _groups(trajectories):
        ranked = sorted(group, key=_rank)
        halves = zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False)
        pairs += [pair for pair in (Pair(*half) for half in halves) if pair.margin > margin][:most]
    return pairs


def _groups(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Finished tries at the same task, by the same player; a training step's are apart from another's."""
    groups: dict[object, list[Trajectory]] = defaultdict(list)
    for one in trajectories:
        if one.reward is not None and one.turns:
            groups[(one.task, one.seed, one.group, one.player, one.info.get("step"))].append(one)
    return list(groups.values())


def _rank(trajectory: Trajectory) -> tuple[float, int]:
    assert trajectory.reward is not None
    return -trajectory.reward, len(trajectory.turns)
