import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.calls import CLOSE, OPEN, BadCall, format_call, parse_calls
from palestra.trajectory import ToolCall

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from([OPEN, CLOSE, "\\u003c", '"', "\\"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(ToolCall, name=words, arguments=st.dictionaries(words, values, max_size=3), id=words)


@given(st.lists(calls, min_size=1, max_size=4), st.text("abc \n", max_size=10))
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
