"""The one rule by which the worlds find the action in a reply."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.authoring.action_line import action_line

LABELS = (
    *("Action:", "action :", "ACTION:", "**Action:**", "**Action**:", "`Action`:", "Thought: go. Action:"),
    *("Action:\n", "Action:\n```\n"),
)
FORMS = (
    *("{}", "  {}  ", "`{}`", "**{}**", '"{}"', "[{}]", "<{}>", "> {}", "{}.", "{}!", "```\n{}\n```", "{}\r\n\n"),
    "\u2003{}\u2028",
)

words = st.from_regex(r"[A-Za-z0-9(][A-Za-z0-9,'/() -]{0,30}[A-Za-z0-9)]", fullmatch=True)
actions = words.map(lambda text: " ".join(text.split())).filter(lambda text: "action" not in text.lower())
thoughts = st.text().filter(lambda text: "action" not in text.casefold())


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("get 1 log", "get 1 log"),
        ("I need wood.\n\nget 1 log\n", "get 1 log"),
        ("Action: get 1 coal\nAction: get 1 log\nThat should do.", "get 1 log"),
        ("Action:\n get  1\tlog\nand then more", "get 1 log"),
        ("My reaction: none.\nlook", "look"),
        ("**Action:** `look`.", "look"),
        ("```\nlook\n```", "look"),
        ("Action: look\nAction:", ""),
        (" \n ", ""),
        ("```", ""),
        ("", ""),
    ],
)
def test_examples(reply: str, action: str) -> None:
    assert action_line(reply) == action


@given(st.text(), actions, st.sampled_from(LABELS), st.sampled_from(FORMS), thoughts)
def test_after_the_last_label_the_first_line_counts(before: str, action: str, label: str, form: str, after: str) -> None:
    assert action_line(f"{before}\n{label} {form.format(action)}\n{after}") == action


@given(thoughts, actions, st.sampled_from(FORMS))
def test_without_a_label_the_last_line_counts(before: str, action: str, form: str) -> None:
    assert action_line(f"{before}\n{form.format(action)}") == action


@given(st.text() | st.lists(st.sampled_from(["Action", ":", " ", "\n", "*", "go", ".", "\x85", "\u3000", "İ"])).map("".join))
def test_any_reply_gives_one_line_that_means_itself(reply: str) -> None:
    action = action_line(reply)
    assert action_line(action) == action == " ".join(action.split())
    assert len(action.splitlines()) <= 1
    assert len(action) <= len(reply)


def test_white_space_of_every_kind_is_an_edge() -> None:
    spaces = "".join(chr(code) for code in range(sys.maxunicode) if chr(code).isspace())
    assert action_line(f"{spaces}look{spaces}") == "look"
