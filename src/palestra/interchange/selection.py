"""Selects episodes of a run for supervised training (solved, best of a group) and for preference training (pairs).

Episodes of one group have the same task, so their rewards are comparable. A failed episode has no reward and is never selected.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from palestra.errors import UsageError
from palestra.trajectory import Trajectory

__all__ = ["Pair", "best_of_group", "preference_pairs", "solved"]


class Pair(NamedTuple):
    """Two episodes of one task; the first is better."""

    chosen: Trajectory
    rejected: Trajectory

    @property
    def margin(self) -> float:
        """The difference of the rewards."""
        assert self.chosen.reward is not None
        assert self.rejected.reward is not None
        return self.chosen.reward - self.rejected.reward


def solved(trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
    """Return the episodes that solved their task."""
    return (trajectory for trajectory in trajectories if trajectory.success)


def best_of_group(trajectories: Iterable[Trajectory], *, least: float = 0.0) -> list[Trajectory]:
    """Return the best episode per task, if its reward is above ``least``. Ties go to the fewest turns, then to the first."""
    best = [min(group, key=_rank) for group in _groups(trajectories)]
    return [trajectory for trajectory in best if trajectory.reward is not None and trajectory.reward > least]


def preference_pairs(trajectories: Iterable[Trajectory], *, margin: float = 0.0, most: int = 1) -> list[Pair]:
    """Return up to ``most`` pairs per task whose rewards differ by more than ``margin``: best and worst, then second best …

    No episode is in two pairs.
    """
    if margin < 0 or most < 1:
        raise UsageError(f"margin must be at least 0 and most at least 1, got margin={margin} and most={most}")
    pairs = []
    for group in _groups(trajectories):
        ranked = sorted(group, key=_rank)
        halves = zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False)
        pairs += [pair for pair in (Pair(*half) for half in halves) if pair.margin > margin][:most]
    return pairs


def _groups(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Group finished episodes by task, player and training step."""
    groups: dict[object, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if trajectory.reward is not None and trajectory.turns:
            groups[(trajectory.task, trajectory.seed, trajectory.group, trajectory.player, trajectory.info.get("step"))].append(
                trajectory
            )
    return list(groups.values())


def _rank(trajectory: Trajectory) -> tuple[float, int]:
    assert trajectory.reward is not None
    return -trajectory.reward, len(trajectory.turns)
