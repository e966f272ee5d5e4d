"""The groups of a run, played ahead of the learner: started when ``Admission`` allows it, kept when they end, taken by
steps.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Self

from palestra.durable import Inside
from palestra.rollouts import TrajectoryWriter, read_trajectories
from palestra.training.admission import Admission
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["GroupStream", "PlayedTask", "read_kept", "write_kept"]


class PlayedTask(NamedTuple):
    """All episodes of one task."""

    number: int
    """Of the task in the run."""
    groups: tuple[TrajectoryGroup, ...]
    """One per player."""


def write_kept(path: Path, kept: Iterable[PlayedTask]) -> None:
    """Write groups for ``read_kept``."""
    with TrajectoryWriter(path) as writer:
        for member in (member for task in kept for group in task.groups for member in group.members):
            writer.write(member)


def read_kept(path: Inside) -> list[PlayedTask]:
    """Read groups that ``write_kept`` wrote, in the order of their numbers."""
    seats: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    for trajectory in read_trajectories(path):
        seats[trajectory.group, trajectory.player].append(trajectory)
    groups = [TrajectoryGroup(members[0].task, tuple(members)) for _, members in sorted(seats.items())]
    numbered = groupby(groups, lambda group: group.members[0].group)
    return [PlayedTask(number, tuple(same)) for number, same in numbered]


class GroupStream:
    """Starts groups and hands them to the steps. Use as an async context manager: leaving it cancels what is being played."""

    def __init__(
        self,
        admission: Admission,
        play: Callable[[range, int], AsyncGenerator[PlayedTask, None]],
        is_useless: Callable[[PlayedTask], bool] = lambda _: False,
    ) -> None:
        """``play`` plays consecutive groups with weights of a version. A group that ``is_useless`` is replaced by another."""
        self.admission = admission
        self._play = play
        self._is_useless = is_useless
        self._kept: dict[int, PlayedTask] = {}
        self.version = 0
        """The version of the weights with which groups start now."""
        self._rollouts: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()

    @property
    def kept(self) -> Mapping[int, PlayedTask]:
        """The groups that have finished and that no step has taken yet."""
        return self._kept

    def restore(self, kept: Iterable[tuple[PlayedTask, int]], again: Iterable[int], version: int) -> None:
        """After a resume: enter groups that had finished, with the version at their start, and play ``again`` what was
        running.
        """
        for task, began in kept:
            self.admission.start([task.number], began)
            self._keep(task)
        self.version = version
        numbers = sorted(again)
        self.admission.start(numbers, version)
        # Consecutive numbers have the same difference to their place.
        for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
            row = [number for _, number in run]
            self._begin(range(row[0], row[-1] + 1))

    def start(self, version: int) -> None:
        """Start the groups that may start with weights of ``version``."""
        self.version = version
        self._begin(self.admission.admit(version))

    async def take(self, step: int) -> list[TrajectoryGroup]:
        """Wait for the groups of ``step`` and return them, in the order of their numbers."""
        while (numbers := self.admission.take(step)) is None:
            await self._hear()
        return [group for number in numbers for group in self._kept.pop(number).groups]

    async def settle(self) -> None:
        """Wait until no group is being played."""
        while self.admission.running:
            await self._hear()

    async def _hear(self) -> None:
        """Wait until a group or a rollout has ended. Raise what made a rollout fail."""
        await self._news.wait()
        self._news.clear()
        for rollout in [rollout for rollout in self._rollouts if rollout.done()]:
            self._rollouts.remove(rollout)
            rollout.result()

    def _begin(self, numbers: Sequence[int]) -> None:
        if numbers:
            rollout = asyncio.create_task(self._run(range(numbers[0], numbers[-1] + 1), self.version))
            rollout.add_done_callback(lambda _: self._news.set())
            self._rollouts.add(rollout)

    async def _run(self, numbers: range, version: int) -> None:
        async with aclosing(self._play(numbers, version)) as tasks:
            async for task in tasks:
                if self._is_useless(task):
                    self.admission.replace(task.number)
                    self.start(self.version)
                else:
                    self._keep(task)
        if lost := sorted(self.admission.running & set(numbers)):
            raise RuntimeError(f"the rollout ended, but these groups were not played: {lost}")

    def _keep(self, task: PlayedTask) -> None:
        self._kept[task.number] = task
        self.admission.finish(task.number)
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.admission.running:
            for rollout in self._rollouts:
                rollout.cancel()
        # Otherwise they end by themselves, when they have closed their environments.
        for rollout in self._rollouts:
            with suppress(asyncio.CancelledError, Exception):
                await rollout
