"""The parser of actions: two forms, one meaning; no text breaks it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.web.actions import ACTIONS, read_action

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Zs")), min_size=1, max_size=20)


def test_both_forms_mean_the_same() -> None:
    for brackets, name, arguments in (
        ("click [e5]", "click", {"element": "e5"}),
        ("type [e7] [two words] [1]", "type", {"element": "e7", "text": "two words", "enter": "1"}),
        ("type [e7] [a [b] c] [press_enter_after=0]", "type", {"element": "e7", "text": "a [b] c", "enter": "0"}),
        ("drag_at [1] [2.5] [-3] [4]", "drag_at", {"x": "1", "y": "2.5", "to_x": "-3", "to_y": "4"}),
        ("wait", "wait", {}),
        ("tab_focus [2]", "tab_focus", {"tab": "2"}),
        ("press [Control+a]", "press", {"keys": "Control+a"}),
    ):
        one, two = read_action(brackets), read_action(format_call(ToolCall(name, arguments)))
        assert (one.name, dict(one.arguments), one.problem) == (name, arguments, "")
        assert (two.name, dict(two.arguments), two.problem) == (name, arguments, "")


def test_an_answer_in_json_stays_json() -> None:
    for answer in ({"status": "SUCCESS", "retrieved_data": ["Zoë", None, True]}, [1, "two"]):
        call = format_call(ToolCall("stop", {"answer": answer}))
        assert json.loads(read_action(call).arguments["answer"]) == answer


@given(WORDS)
def test_a_text_arrives_as_it_was_written(text: str) -> None:
    call = format_call(ToolCall("type", {"element": "e1", "text": text}))
    assert read_action(call).arguments["text"] == text


@given(st.text(max_size=200))
def test_no_message_breaks_the_parser(message: str) -> None:
    action = read_action(message)
    assert bool(action.problem) != (action.name in ACTIONS)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("", "There is no action"),
        ("fly [e5]", "There is no action 'fly'"),
        ("click", "has another form: click [element]"),
        ("click [Submit]", "is not the id of an element"),
        ("click_at [a] [b]", "is not a number"),
        ("scroll [left]", "up or down"),
        ("hover [e1]", "There is no action 'hover'"),
        ('<tool_call>{"name": "click"', "cannot be read"),
        ('<tool_call>{"name": "click", "arguments": {"element": "e1", "twice": 1}}</tool_call>', "another form"),
    ],
)
def test_a_wrong_action_is_a_sentence(message: str, words: str) -> None:
    names = tuple(name for name in ACTIONS if name != "hover")
    assert words in read_action(message, names).problem


def test_the_last_line_counts_and_thoughts_before_it_do_not() -> None:
    assert read_action("I should not click [e1].\nclick [e2]").arguments == {"element": "e2"}
    assert read_action("**Action:** `click [e3]`\nbecause it is there").arguments == {"element": "e3"}
