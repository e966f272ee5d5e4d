"""Groups are complete: a member that failed is in every group it belongs to, also in those of players who never acted."""

from collections.abc import AsyncIterator, Sequence

from palestra.rollouts import grouped
from palestra.trajectory import Completion, Failure, Phase, StopReason, Task, Trajectory, TrajectoryGroup, Turn


def played(member: int, player: str, group: int = 0) -> Trajectory:
    turns = (Turn("o", Completion("a"), 1.0),)
    return Trajectory(Task("duel"), StopReason.TERMINATED, turns=turns, player=player, group=group, member=member)


def failed(member: int, player: str = "", group: int = 0) -> Trajectory:
    turns = (Turn("o", Completion("a"), 0.5),) if player else ()
    failures = (Failure.of(ValueError("no"), Phase.RESET, 0),)
    return Trajectory(Task("duel"), StopReason.ERROR, turns=turns, failures=failures, player=player, group=group, member=member)


async def groups_of(trajectories: Sequence[Trajectory], size: int) -> list[TrajectoryGroup]:
    async def stream() -> AsyncIterator[Trajectory]:
        for trajectory in trajectories:
            yield trajectory

    return [group async for group in grouped(stream(), size)]


def seats(group: TrajectoryGroup) -> list[tuple[str, int, bool]]:
    return [(member.player, member.member, member.stop.failed) for member in group.members]


async def test_a_member_that_failed_before_anybody_acted_is_in_every_players_group() -> None:
    groups = await groups_of([failed(1), played(0, "white"), played(0, "black"), played(2, "white"), played(2, "black")], 3)
    assert sorted(map(seats, groups)) == [
        [("black", 0, False), ("black", 1, True), ("black", 2, False)],
        [("white", 0, False), ("white", 1, True), ("white", 2, False)],
    ]
    assert all(member.reward is None and not member.turns for group in groups for member in group.members if member.stop.failed)


async def test_a_member_that_failed_before_the_second_player_acted_is_in_that_players_group() -> None:
    groups = await groups_of([failed(0, "white"), played(1, "white"), played(1, "black")], 2)
    assert [seats(group) for group in groups] == [
        [("white", 0, True), ("white", 1, False)],
        [("black", 0, True), ("black", 1, False)],
    ]
    assert groups[1].members[0].turns == ()


async def test_episodes_that_all_failed_before_anybody_acted_are_one_group() -> None:
    assert [seats(group) for group in await groups_of([failed(0), failed(1)], 2)] == [[("", 0, True), ("", 1, True)]]


async def test_a_player_who_did_not_act_in_a_sound_episode_has_no_place_in_it() -> None:
    groups = await groups_of([played(0, "white"), played(1, "white"), played(1, "black")], 2)
    assert [seats(group) for group in groups] == [[("white", 0, False), ("white", 1, False)], [("black", 1, False)]]
