"""Frames survive encoding and decoding; everything else is refused."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import SchemaError
from palestra.serve import wire
from palestra.trajectory import Task

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NATURAL = st.integers(0, 2**53)
VERBS = st.one_of(
    st.builds(wire.ResetFrame, st.builds(Task, TEXT, st.integers(0, 2**53), params=st.dictionaries(TEXT, st.integers(-9, 9)))),
    st.builds(wire.StepFrame, TEXT),
    st.builds(wire.Ask, st.sampled_from(["oracle", "sample_random_action"])),
    st.builds(wire.SeedActions, st.integers(-(2**60), 2**60)),
    st.just(wire.Close()),
)
FRAMES = st.one_of(
    st.builds(wire.CallFrame, NATURAL, NATURAL, st.floats(0.001, 86_400), VERBS),
    st.builds(wire.Beat, NATURAL),
    st.builds(wire.Hello, st.just((1, 2)), st.text("abc:-", max_size=20), st.text("0123456789abcdef", max_size=32)),
)


@given(FRAMES)
def test_a_frame_comes_back_as_it_was(frame: Any) -> None:
    assert wire.decode_frame(wire.encode_frame(frame), wire.FromClient) == frame
    assert wire.decode_json_frame(wire.encode_json_frame(frame), wire.FromClient) == frame


@given(st.binary(max_size=300))
def test_noise_is_refused_and_nothing_else_happens(data: bytes) -> None:
    for kind in (wire.FromClient, wire.FromServer):
        for decode in (wire.decode_frame, wire.decode_json_frame):
            try:
                frame = decode(data, kind)
            except SchemaError:
                continue
            assert isinstance(frame, msgspec.Struct)


@given(FRAMES, st.data())
def test_a_flipped_byte_is_refused_or_another_frame(frame: Any, data: st.DataObject) -> None:
    encoded = bytearray(wire.encode_frame(frame))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(SchemaError):
        assert isinstance(wire.decode_frame(bytes(encoded), wire.FromClient), msgspec.Struct)


@pytest.mark.parametrize("depth", [wire.DEEPEST - 10, wire.DEEPEST + 10, 10_000, 1_000_000])
def test_depth_is_bounded(depth: int) -> None:
    packed = wire.encode_frame(wire.CallFrame(1, 1, 1.0, wire.ResetFrame(Task("x", params={"x": 7}))))
    deep = packed.replace(b"\xa1x\x07", b"\xa1x" + b"\x91" * depth + b"\x07")
    text = b'{"type":"reset","task":{"env":"x","params":{"x":' + b"[" * depth + b"]" * depth + b"}}}"
    call = b'{"type":"call","seq":1,"request":1,"deadline":1.0,"verb":' + text + b"}"
    for decode, data in ((wire.decode_frame, deep), (wire.decode_json_frame, call)):
        if depth < wire.DEEPEST:
            wire.check_depth(decode(data, wire.FromClient).verb.task.params)
        else:
            with pytest.raises(SchemaError):
                wire.check_depth(decode(data, wire.FromClient).verb.task.params)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "0", "1e9", "null", '"1"'])
def test_a_deadline_is_a_positive_finite_number(value: str) -> None:
    frame = f'{{"type":"call","seq":1,"request":1,"deadline":{value},"verb":{{"type":"close"}}}}'
    with pytest.raises(SchemaError):
        wire.decode_json_frame(frame.encode(), wire.CallFrame)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_deadline_is_a_positive_finite_number_in_msgpack_too(value: float) -> None:
    with pytest.raises(SchemaError):
        wire.decode_frame(wire.encode_frame(wire.CallFrame(1, 1, value, wire.Close())), wire.FromClient)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(SchemaError, match="unknown field"):
        wire.decode_frame(msgspec.msgpack.encode({"type": "beat", "request": 1, "more": 2}), wire.FromClient)


def test_every_code_has_a_status() -> None:
    assert set(wire.HTTP_STATUS) == set(wire.Code)
    assert [code for code, status in wire.HTTP_STATUS.items() if status >= 500] == [wire.Code.INTERNAL]
