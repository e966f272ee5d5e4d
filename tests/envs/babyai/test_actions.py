"""The parser, hostile texts, and that any action leaves the rewards in range."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.babyai.actions import GRAMMAR, action_of, primitive_of
from palestra.envs.babyai.agentgym import AgentGymBabyAI
from palestra.envs.babyai.env import BabyAI

HOSTILE = (
    "",
    "\0",
    "Action:",
    "go to",
    "go to  1",
    "pick up red ball 99999999999999999999",
    "\ud800",
    "🤖" * 300,
    "action:" * 50,
)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("go to red ball 2", "go to red ball 2"),
        ("I think.\nAction: Go to the", "go to the 1"),
        ("Action: turn left\nAction: turn right.", "turn right"),
        ("action:\n  `pickup  red ball`\nbecause", "pick up red ball 1"),
        ("toggle and go through red door 1.", "toggle and go through red door 1"),
        ("x" * 500, ""),
    ],
)
def test_what_a_text_means(text: str, action: str) -> None:
    assert action_of(text) == action


@given(st.text())
def test_any_text_has_a_meaning_that_means_itself(text: str) -> None:
    action = action_of(text)
    assert len(action) <= 2 * 200
    assert "\n" not in action
    assert primitive_of(text) in (None, *range(7))


@given(st.sampled_from(GRAMMAR[:3]), st.text().filter(lambda text: "action" not in text.lower()))
def test_reasoning_before_the_action_changes_nothing(action: str, thought: str) -> None:
    assert action_of(f"{thought}\nAction: {action}\nbye") == action


@pytest.mark.parametrize("env", [BabyAI("MiniBossLevel"), BabyAI("GoToLocal", actions="primitive"), AgentGymBabyAI()])
def test_random_and_hostile_actions(env: BabyAI) -> None:
    low, high = env.reward_range
    chance = random.Random(0)
    env.reset(seed=0)
    seed = 0
    for _ in range(150):
        step = env.step(chance.choice(HOSTILE) if chance.random() < 0.5 else env.sample_random_action())
        assert low <= step.reward <= high
        assert not (step.terminated and step.truncated)
        if step.terminated or step.truncated:
            seed += 1
            env.reset(seed=seed)


def test_an_action_that_is_not_possible_costs_a_step() -> None:
    env = BabyAI("GoToLocal")
    env.reset(seed=0)
    step = env.step("fly")
    assert env.world.steps == 1
    assert step.info == {"format_error": True}


def test_an_action_that_is_not_possible_says_so_at_the_turn_limit_too() -> None:
    env = BabyAI("GoToLocal", max_turns=2)
    env.reset(seed=0)
    first, last = env.step("fly"), env.step("fly")
    assert (first.info["format_error"], last.truncated, last.info["format_error"]) == (True, True, True)
    env.reset(seed=0)
    env.step("turn left")
    assert "format_error" not in env.step("turn left").info


def test_a_fork_continues_alike() -> None:
    env = BabyAI("PickupLoc")
    env.reset(seed=3)
    env.step("turn left")
    twin = env.fork()
    for _ in range(5):
        action = env.oracle()
        assert twin.oracle() == action
        step, other = env.step(action), twin.step(action)
        assert step == other
        if step.terminated:
            return
