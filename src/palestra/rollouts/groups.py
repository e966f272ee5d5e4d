"""Groups of trajectories of one task, for algorithms that compare the members of a group."""

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

import msgspec

from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["grouped", "grouped_by_task"]


async def grouped(trajectories: AsyncIterable[Trajectory], group_size: int) -> AsyncIterator[TrajectoryGroup]:
    """Yield each group when its last member has ended, members in order. Each player of a task has its own group.

    A failed episode is in its group, without a reward. If it failed before a player acted, that player has no trajectory of it;
    a copy without turns is added to the player's group. Groups that are incomplete when ``trajectories`` ends are yielded last:
    those with such a copy, and all others if the iteration was cut short.
    """
    waiting: dict[tuple[int, str], list[Trajectory]] = defaultdict(list)
    failed: dict[int, dict[int, Trajectory]] = defaultdict(dict)
    try:
        async for trajectory in trajectories:
            key = (trajectory.group, trajectory.player)
            waiting[key].append(trajectory)
            if trajectory.stop.failed:
                failed[trajectory.group][trajectory.member] = trajectory
            if len(waiting[key]) == group_size:
                yield _group(waiting.pop(key))
    finally:
        if isinstance(trajectories, AsyncGenerator):
            await trajectories.aclose()  # leaving this iteration early also ends the inner one
    named = {group for group, player in waiting if player}
    for (group, player), members in waiting.items():
        if not player and group in named:
            continue  # episodes in which no player acted: they are in the groups of the players
        acted = {trajectory.member for trajectory in members}
        absent = [
            msgspec.structs.replace(trajectory, player=player, turns=(), segments=(), policy="")
            for member, trajectory in failed[group].items()
            if member not in acted
        ]
        yield _group([*members, *absent])


async def grouped_by_task(trajectories: AsyncIterable[Trajectory], group_size: int) -> AsyncIterator[list[TrajectoryGroup]]:
    """Yield the groups of all players of a task when its last episode has ended, ordered by player."""
    waiting: dict[int, list[Trajectory]] = defaultdict(list)
    ending: int | None = None
    async for trajectory in trajectories:
        number = trajectory.group
        if ending is not None and ending != number:
            yield await _all_of(waiting.pop(ending), group_size)
            ending = None
        waiting[number].append(trajectory)
        if len({member.member for member in waiting[number]}) < group_size:
            continue
        if trajectory.player:  # the other players of this episode follow
            ending = number
        else:
            yield await _all_of(waiting.pop(number), group_size)
    for left in waiting.values():
        yield await _all_of(left, group_size)


async def _all_of(members: list[Trajectory], group_size: int) -> list[TrajectoryGroup]:
    async def each() -> AsyncIterator[Trajectory]:
        for member in members:
            yield member

    groups = [group async for group in grouped(each(), group_size)]
    return sorted(groups, key=lambda group: group.members[0].player)


def _group(members: list[Trajectory]) -> TrajectoryGroup:
    ordered = tuple(sorted(members, key=lambda trajectory: trajectory.member))
    return TrajectoryGroup(ordered[0].task, ordered)
