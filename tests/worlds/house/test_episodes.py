"""Whole episodes: the oracle, wrong turns, hostile text, forks, and the same episodes everywhere."""

from itertools import product

import pytest

from palestra.core import Env
from palestra.errors import UsageError
from palestra.registry import make
from palestra.trajectory import StopReason
from palestra.worlds.house.env import Household
from palestra.worlds.house.goals import TASKS, Goal
from palestra.worlds.house.wording import WORDINGS, wish_of

LEVELS = [f"house:{task}-{level}" for task in (*TASKS, "any") for level in ("easy", "hard")]


def finish(env: Env) -> tuple[bool, int]:
    """Let the oracle play to the end: whether it solved the task, and its number of turns."""
    for turn in range(1, 60):
        step = env.step(env.oracle())
        if step.terminated or step.truncated:
            return step.reward == 1.0, turn
    raise AssertionError("the episode does not end")


@pytest.mark.parametrize("id", [id for id in LEVELS if id.endswith("-hard")])
def test_the_oracle_recovers_from_random_play(id: str) -> None:
    with make(id) as env:
        for seed in range(10):
            env.reset(seed=seed)
            ended = False
            for _ in range(30):
                step = env.step(env.sample_random_action())
                ended = step.terminated
                if ended:
                    break
            assert ended or finish(env)[0]


def test_tasks_are_worded_with_the_right_article_and_preposition() -> None:
    assert wish_of(Goal("pick", "onion", "oven"), True) == "Put one onion into an oven."
    assert wish_of(Goal("pick", "onion", "desk"), False, 1) == "Find an onion and leave it on a desk."
    for task, which, hollow in product(TASKS, range(WORDINGS), (True, False)):
        assert "{" not in wish_of(Goal(task, "mug", "shelf"), hollow, which)


def test_a_reply_without_a_command_lists_the_commands_and_costs_a_turn() -> None:
    with make("house:pick-easy", max_turns=2) as env:
        env.reset(seed=0)
        step = env.step("I would rather dance.")
        assert "take THING from PLACE" in step.observation
        assert step[1:4] == (0.0, False, False)
        assert step.info == {"format_error": True}
        step = env.step("look")
        assert step[1:4] == (0.0, False, True)
        assert step.info == {"success": False, "stop_reason": StopReason.TURN_LIMIT}


def test_wrong_options_are_named() -> None:
    with pytest.raises(UsageError, match="tasks are pick, look"):
        Household("cook")
    with pytest.raises(UsageError, match='no size "huge": write easy or hard'):
        Household(size="huge")
