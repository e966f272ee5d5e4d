"""``play``: one episode for a program that owns the loop."""

from collections import Counter

import pytest

import palestra
from palestra import StopReason, Task, play
from palestra.errors import UsageError
from tests.rollouts.faulty import CountCloses

TASK = Task("game:GuessTheNumber-v0-easy", 3)


async def test_an_episode_is_the_one_that_rollout_plays() -> None:
    trajectory = await play(TASK, "oracle", group=4, member=2, seed=5)
    (other,) = [trajectory async for trajectory in palestra.rollout([TASK], "oracle", seed=5)]
    assert trajectory.turns[0].observation == other.turns[0].observation
    assert (trajectory.group, trajectory.member, trajectory.seed, trajectory.attempt) == (4, 2, 5, 0)
    assert trajectory.reward == 1.0


async def test_members_of_a_group_draw_their_own_random_actions() -> None:
    actions = {tuple(turn.completion.text for turn in (await play(TASK, "random", member=member)).turns) for member in range(6)}
    assert len(actions) > 1
    assert (await play(TASK, "random", member=1)).turns[0].completion == (await play(TASK, "random", member=1)).turns[
        0
    ].completion


async def test_the_turn_limit_and_tools_reach_the_environment() -> None:
    assert (await play(TASK, lambda _: "\\boxed{0}", max_turns=2)).stop is StopReason.TURN_LIMIT
    assert "python" in str((await play(TASK, "random", tools=["python"])).turns[0].observation)


async def test_the_environment_is_closed_once() -> None:
    closes: Counter[int] = Counter()
    assert not (await play(TASK, "random", wrappers=[lambda env: CountCloses(env, closes)])).stop.failed
    assert closes == {0: 1}


async def test_several_players_are_refused_with_the_way_out() -> None:
    with pytest.raises(UsageError, match=r"use rollout\(\) for several policies"):
        await play(TASK, {"a": "random"})
