import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.tools import CallForm, find_calls
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import BadCall, format_call

ALL = tuple(CallForm)
_words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | _words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=10,
)
_calls = st.builds(ToolCall, name=_words, arguments=st.dictionaries(_words, _json, max_size=4), id=_words)
_TAGS = ["tool_call", "python", "search", "think", "tool_name", "arguments"]
_pieces = st.sampled_from(
    [
        *(f"<{end}{tag}>" for tag in _TAGS for end in ("", "/")),
        '{"name": "f", "arguments": {',
        "}}",
        "```python\n",
        "```",
        *"\nx\\",
    ]
)


@pytest.mark.gate
@given(st.lists(_calls, min_size=1, max_size=3), _words.filter(lambda words: "<" not in words))
@pytest.mark.slow
def test_what_is_formatted_is_read_back_in_order(calls: list[ToolCall], between: str) -> None:
    text = between.join(format_call(call) for call in calls)
    assert find_calls(text) == tuple(calls)


@given(st.lists(_pieces | _words, max_size=30).map("".join))
def test_any_text_gives_calls_and_problems_and_nothing_else(text: str) -> None:
    attempts = find_calls(text, ALL)
    assert all(isinstance(attempt, ToolCall) or attempt.error for attempt in attempts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', ToolCall("f", {"a": 1})),
        ('<tool_call>{"name": "f"}</tool_call>', ToolCall("f", {})),
        ('<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', ToolCall("f", {"a": 1})),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', ToolCall("f", {"a": 1})),
        ('<tool_call><tool_name>f</tool_name><arguments>{"a": 1}</arguments></tool_call>', ToolCall("f", {"a": 1})),
        ("<tool_call><tool_name>f</tool_name><arguments></arguments></tool_call>", ToolCall("f", {})),
        ("so\n```python\nprint(1)\n```\n", ToolCall("python", {"code": "print(1)"})),
        ("<python>print(1)</python>", ToolCall("python", {"code": "print(1)"})),
        ("<search> who? </search>", ToolCall("search", {"query": "who?"})),
    ],
)
def test_the_forms_models_write(text: str, expected: ToolCall) -> None:
    assert find_calls(text, ALL) == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        '<tool_call>{"name": 1}</tool_call>',
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        "<tool_call>" + "[" * 5000 + "</tool_call>",
        '<tool_call>{"name": "f", "args": {"a": 1}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>',
        "<tool_call><tool_name>f</tool_name></tool_call>",
        "<tool_call><tool_name>f</tool_name><arguments>[]</arguments></tool_call>",
        "<python>\n</python>",
        "<search></search>",
        "```python\nprint(1)",
        "```python\n```",
        '<tool_call>{"name": "\ud800"}</tool_call>',
    ],
)
def test_a_failed_attempt_is_told_and_is_no_call(text: str) -> None:
    (attempt,) = find_calls(text, ALL)
    assert isinstance(attempt, BadCall)


def test_forms_that_are_not_asked_for_are_plain_text() -> None:
    assert find_calls("```python\nprint(1)\n```") == ()


def test_a_thought_is_not_a_call() -> None:
    call = format_call(ToolCall("f", {}))
    assert find_calls(f"<think>{call}</think>{call}") == (ToolCall("f", {}),)
    assert find_calls(f"<think>{call}") == ()


@pytest.mark.parametrize("piece", ["<tool_call>", "<think>", "```python\n", "<python>", "<tool_call></tool_call>", "\n```"])
def test_a_megabyte_of_openings_is_read_in_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        gc.disable()  # what a collection takes depends on what other tests have left behind
        began = time.process_time()
        find_calls(text, ALL)
        spent = time.process_time() - began
        gc.enable()
        return spent

    # Sixteen times the text: quadratic reading would take 256 times as long.
    large, small = (min(seconds(size) for _ in range(3)) for size in (2**20, 2**16))
    assert large < 64 * small + 0.1
