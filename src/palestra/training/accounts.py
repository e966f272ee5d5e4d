"""The accounts of a run: the fate of every episode in the ledger, and the outcome of every step per environment and per row.

Horizons and ``play.difficulty`` read the outcomes. An episode of several players has several trajectories and one entry in the
ledger: it was used if any of them was.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from palestra.durable.ledger import Ledger, State
from palestra.training.algorithms.horizon import StepOutcome
from palestra.training.algorithms.validity import InvalidSample
from palestra.training.difficulty import RowOutcome
from palestra.training.experience import USED, Experience
from palestra.training.stream import PlayedTask
from palestra.training.summary import solved
from palestra.training.tasks import KnownOutcomes
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["Accounts", "StartedGroups"]


class StartedGroups(NamedTuple):
    """The groups that the ledger of a resumed run knows."""

    total: int
    replaced: int
    """How many of them another group took the place of: they have ended, and no step took them."""
    unfinished: set[int]
    """The numbers of those with an episode that has not ended."""


class Accounts:
    """The accounts of one run."""

    def __init__(self, ledger: Ledger, *, by_row: bool) -> None:
        """``by_row``: whether the outcomes of rows are kept, which ``play.difficulty`` needs."""
        self._ledger = ledger
        self._by_row = by_row
        self.outcomes: dict[str, list[StepOutcome]] = defaultdict(list)
        """Environment → the outcomes of its steps."""
        self.row_outcomes: dict[str, list[RowOutcome]] = defaultdict(list)
        """Finite environment → the outcomes of its rows."""
        self._replaced: list[float | None] = []
        """Rewards of the tasks that were replaced since the last step; ``None`` for an episode that failed or is invalid."""

    def issue(self, number: int, env: str, members: int) -> None:
        """Enter the episodes of the group ``number``, which are about to start."""
        for name in (_episode(number, member) for member in range(members)):
            if self._ledger.state(name) is None:  # otherwise an earlier process issued it and did not finish it
                self._ledger.issue(name, env)
                self._ledger.lease(name)

    def enter_step(self, step: int, groups: Sequence[TrajectoryGroup], experience: Experience) -> None:
        """Enter what became of the ``groups`` of ``step``, which learned from ``experience``."""
        outcomes: dict[str, list[tuple[Trajectory, str]]] = defaultdict(list)
        for group, row in zip(groups, experience.outcomes, strict=True):
            for member, outcome in zip(group.members, row, strict=True):
                outcomes[_episode(member.group, member.member)].append((member, outcome))
        for name, seats in outcomes.items():
            first, outcome = seats[0]
            if first.stop.failed:
                self._ledger.fail(name, first.failures[-1].kind, first.attempt, step=step + 1)
                continue
            self._ledger.finish(name)
            if not any(outcome == USED for _, outcome in seats):
                self._ledger.drop(name, outcome, step + 1)
        self._ledger.consume([name for name in outcomes if self._ledger.state(name) is State.FINISHED], step + 1)
        counted = experience.counted(groups)
        verdicts = solved([group.members for group in counted])
        of_env: dict[str, list[bool]] = defaultdict(list)
        for group, of_group in zip(counted, verdicts, strict=True):
            of_env[group.task.env] += of_group
            if self._by_row and group.task.index is not None:
                row_outcome = RowOutcome(step, group.task.index, len(of_group), sum(of_group))
                self.row_outcomes[group.task.env].append(row_outcome)
        for env, of_episodes in sorted(of_env.items()):
            self.outcomes[env].append(StepOutcome(step, len(of_episodes), sum(of_episodes)))

    def enter_replaced(self, task: PlayedTask, reasons: Sequence[Sequence[InvalidSample | None]]) -> None:
        """Enter a task that another one replaces, so that no step takes it. ``reasons`` say what is invalid in its groups."""
        members = {member.member: member for group in task.groups for member in group.members}
        for number, member in sorted(members.items()):
            name = _episode(task.number, number)
            if member.stop.failed:
                self._ledger.fail(name, member.failures[-1].kind, member.attempt)
            else:
                self._ledger.drop(name, "replaced")
        for group, row in zip(task.groups, reasons, strict=True):
            self._replaced += [m.reward if reason is None else None for m, reason in zip(group.members, row, strict=True)]

    def replacements(self) -> dict[str, float]:
        """Return the metrics of the tasks that were replaced since the last call."""
        replaced, self._replaced = self._replaced, []
        rewards = [reward for reward in replaced if reward is not None]
        return {"replaced": len(replaced), **({"replaced_reward": float(np.mean(rewards))} if rewards else {})}

    def known(self, before: int) -> KnownOutcomes:
        """Return the outcomes of the steps before the step ``before``."""
        return KnownOutcomes.until(before, self.outcomes, self.row_outcomes)

    def restore(self, outcomes: Mapping[str, list[StepOutcome]], rows: Mapping[str, list[RowOutcome]]) -> None:
        """Continue after the outcomes that a checkpoint holds."""
        self.outcomes, self.row_outcomes = defaultdict(list, outcomes), defaultdict(list, rows)

    def started_groups(self) -> StartedGroups:
        """Return what the ledger says about groups, after it was rewound to a checkpoint."""
        episodes: dict[int, list[str]] = defaultdict(list)
        for name in self._ledger.rollouts(*State):
            episodes[int(name.partition(".")[0])].append(name)
        begun = set(self._ledger.rollouts(State.ISSUED, State.LEASED))
        return StartedGroups(
            total=max(episodes, default=-1) + 1,
            replaced=sum(self._was_replaced(names) for names in episodes.values()),
            unfinished={number for number, names in episodes.items() if begun.intersection(names)},
        )

    def _was_replaced(self, names: Sequence[str]) -> bool:
        ended = all(self._ledger.state(name) in (State.DROPPED, State.FAILED) for name in names)
        return ended and self._ledger.step_of(names[0]) is None


def _episode(group: int, member: int) -> str:
    """The name of an episode in the ledger."""
    return f"{group}.{member}"
