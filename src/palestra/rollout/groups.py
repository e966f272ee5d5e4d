"""Trajectories of one task gathered into groups, for algorithms that compare the members of a group."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["grouped"]


async def grouped(trajectories: AsyncIterable[Trajectory], group_size: int) -> AsyncIterator[TrajectoryGroup]:
    """A group as soon as its last member has ended, members in order. Each player of a group's task has a group of its own.

    A failed member is a member: it is in the group, without a reward. Groups that are incomplete when ``trajectories`` ends
    (the iteration was cut) are yielded last, so that nothing is lost.
    """
    waiting: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    try:
        async for trajectory in trajectories:
            key = (trajectory.group, trajectory.player)
            waiting[key].append(trajectory)
            if len(waiting[key]) == group_size:
                yield _group(waiting.pop(key))
    finally:
        if isinstance(trajectories, AsyncGenerator):
            await trajectories.aclose()  # whoever leaves this iteration early leaves that one too
    for members in waiting.values():
        yield _group(members)


def _group(members: list[Trajectory]) -> TrajectoryGroup:
    ordered = tuple(sorted(members, key=lambda trajectory: trajectory.member))
    return TrajectoryGroup(ordered[0].task, ordered)
