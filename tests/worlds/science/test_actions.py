"""The parser of actions: it finds the action that was meant, and lets nothing else through to the simulator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.worlds.science.actions import LONGEST, action_of, first_observation
from palestra.worlds.science.gold import shipped_paths


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("look around", "look around"),
        ("Action: open door to kitchen", "open door to kitchen"),
        ("I think.\nAction: go to hallway\nThen I will look.", "go to hallway"),
        ("Action: wait\nNo, better:\nACTION: `pick up red apple`.", "pick up red apple"),
        ("Action:\nfocus on substance B", "focus on substance B"),
        ("Action: 3", "3"),
        ("", None),
        ("Action:", None),
        ("first line\nlook around", "look around"),
        ("look\x00around", None),
        ("öffne die Tür", None),
        ("\ud800", None),
        ("a" * (LONGEST + 1), None),
    ],
)
def test_the_action_is_what_follows_the_last_mark(message: str, action: str | None) -> None:
    assert action_of(message) == action


@given(st.text())
def test_any_text_gives_a_short_plain_line_or_nothing(message: str) -> None:
    action = action_of(message)
    assert action is None or (0 < len(action) <= LONGEST and action.isascii() and action.isprintable())


@given(st.text(), st.sampled_from(sorted({action for path in shipped_paths().values() for action in path})))
def test_every_action_of_a_gold_path_arrives_as_it_is(before: str, action: str) -> None:
    assert action_of(action) == action
    assert action_of(f"{before}\nAction: {action}\nthat is it") == action


def test_the_rules_name_teleporting_only_where_it_is_possible() -> None:
    assert "teleport" not in first_observation("Boil water.", "A kitchen.", teleport=False)
    assert "teleport to PLACE" in first_observation("Boil water.", "A kitchen.", teleport=True)
