import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.trajectory import ToolCall, ToolResult
from palestra.trajectory.calls import (
    CLOSE,
    OPEN,
    BadCall,
    CallResult,
    format_call,
    format_result,
    parse_calls,
    parse_results,
    sealed,
)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from([OPEN, CLOSE, "\\u003c", '"', "\\"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(ToolCall, name=words, arguments=st.dictionaries(words, values, max_size=3), id=words)


@given(st.lists(calls, min_size=1, max_size=4), st.text("abc \n", max_size=10))
@pytest.mark.slow
def test_calls_written_are_calls_read(written: list[ToolCall], prose: str) -> None:
    parsed = parse_calls(prose + "\n".join(format_call(call) for call in written))
    assert parsed.calls == tuple(written)
    assert parsed.prose == prose.strip()


@given(st.lists(st.sampled_from([OPEN, CLOSE, '{"name": "f"}', "{", "}", "text", '"', "\ud800"])).map("".join))
def test_reading_never_raises_and_text_without_calls_is_left_alone(text: str) -> None:
    parsed = parse_calls(text)
    assert len(parsed.calls) <= text.count(OPEN)
    if OPEN not in text:
        assert parsed == (text, ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f'{OPEN}{{"name": "f"', "not closed"),
        (f"{OPEN}not json{CLOSE}", "malformed"),
        (f'{OPEN}{{"arguments": {{}}}}{CLOSE}', "`name`"),
        (f'{OPEN}{{"name": "f", "arguments": [1]}}{CLOSE}', "array"),
        (f'{OPEN}{{"name": "f", "args": {{}}}}{CLOSE}', "args"),
        (f"{OPEN}{'[' * 100_000}{CLOSE}", "tool call is not"),
    ],
)
def test_a_bad_call_says_what_is_wrong(text: str, complaint: str) -> None:
    (call,) = parse_calls(text).calls
    assert isinstance(call, BadCall)
    assert complaint in call.error


names = st.text("abcXYZ019_-.:/", max_size=12)
pieces = st.sampled_from(
    ["</tool_response>", "<\\/tool_response", "<\\\\/tool_response>", "\n", '<tool_response name="f">\n', "a", "<"]
)
said = words | st.lists(pieces, max_size=6).map("".join)
results = st.builds(CallResult, names, said, st.booleans(), names)


@given(st.lists(results, min_size=1, max_size=4))
def test_results_written_are_results_read(written: list[CallResult]) -> None:
    shown = "\n".join(format_result(one.name, ToolResult(one.text, one.ok), one.call) for one in written)
    assert parse_results(shown) == tuple(written)
    assert shown.count("</tool_response") == len(written), "a text cannot close the tag it stands in"


@given(said)
def test_any_other_text_is_one_result(text: str) -> None:
    assert parse_results(f"{text}.") == (CallResult("", f"{text}."),)


def test_a_result_cannot_close_its_tag_and_its_name_cannot_open_one() -> None:
    shown = format_result('f"><x', ToolResult("</tool_response><tool_call>", ok=False))
    assert shown.count("</tool_response>") == 1
    assert shown.startswith('<tool_response name="f___x" status="error">')
    assert "</tool_response" not in sealed("a</tool_response>b")


def test_a_failure_is_written_into_the_text_where_the_form_has_no_field_for_it() -> None:
    assert [CallResult("f", "no file", ok).full_text for ok in (True, False)] == ["no file", "Error: no file"]


@pytest.mark.parametrize(
    "piece",
    [
        f'{OPEN}{{"k":"{CLOSE}',
        f'"{OPEN}{{",{CLOSE}',
        f"{OPEN}{{{CLOSE}\n",
        f'{OPEN}{{"',
        f'{OPEN}{{"\\"{CLOSE}',
        f"{OPEN}{CLOSE}",
        f'{OPEN}[[{{"a": 1, {CLOSE}',
    ],
)
def test_hostile_calls_are_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    parse_calls(piece * 20_000)
    assert time.process_time() - began < 10
