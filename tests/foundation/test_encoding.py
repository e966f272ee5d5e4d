import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import SchemaError
from palestra.foundation.encoding import clean_text, decode_json, decode_msgpack, encode_msgpack, floats, ints
from palestra.trajectory import Content, Tokens, Trajectory


@given(st.binary(max_size=40))
def test_rubbish_is_a_schema_error_and_nothing_else(rubbish: bytes) -> None:
    for decode in (decode_json, decode_msgpack):
        with pytest.raises(SchemaError, match="not a Trajectory"):
            decode(rubbish, Trajectory)


def test_rubbish_where_one_of_several_types_is_expected_is_a_schema_error_too() -> None:
    with pytest.raises(SchemaError, match=r"not a str \| tuple"):
        decode_msgpack(encode_msgpack(7), Content)  # type: ignore[arg-type]


@pytest.mark.parametrize("array", ["AAA=", "not base64", 7])
def test_an_array_of_broken_items_is_refused(array: object) -> None:
    with pytest.raises(SchemaError):
        decode_json(msgspec.json.encode({"prompt": array, "ids": "", "logprobs": ""}), Tokens)


def test_arrays_cannot_be_changed_and_are_not_copied_twice() -> None:
    array = ints([1, 2])
    assert ints(array) is array
    assert floats(floats([1.0])).dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5


@given(st.text())
def test_clean_text_can_always_be_written_and_changes_nothing_else(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode()
    assert clean_text(cleaned) == cleaned
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert cleaned == text


def test_a_lone_surrogate_is_replaced_and_a_pair_is_joined() -> None:
    assert clean_text("a\ud800é") == "a\ufffdé"
    assert clean_text("\ud83d\ude00 \ude00") == "\U0001f600 \ufffd"
