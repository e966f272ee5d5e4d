"""The parser, hostile texts, and that any action leaves the rewards in range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.worlds.babyai.actions import GRAMMAR, action_of, primitive_of
from palestra.worlds.babyai.env import BabyAI


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


def test_an_action_that_is_not_possible_says_so_at_the_turn_limit_too() -> None:
    env = BabyAI("GoToLocal", max_turns=2)
    env.reset(seed=0)
    first, last = env.step("fly"), env.step("fly")
    assert (first.info["format_error"], last.truncated, last.info["format_error"]) == (True, True, True)
    env.reset(seed=0)
    env.step("turn left")
    assert "format_error" not in env.step("turn left").info
