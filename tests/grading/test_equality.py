"""Every grader grants the equality that docs/reference/equality.md promises, and no more."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections import namedtuple as named
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import pytest
from tests.grading import equality_maths, output_pairs, value_pairs, word_pairs
from tests.trajectory.call_pairs import FENCED, READ, REFUSED, UNFENCED

from palestra.grading import exact_match, fenced_code
from palestra.grading.code import same_output
from palestra.grading.decoding import decode
from palestra.grading.text import normalize
from palestra.grading.values import BadValue, same, tree_of
from palestra.sandbox.inside.values import encoded
from palestra.tools import find_calls
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import BadCall, ParsedText, parse_calls


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


_TYPES = (Counter, OrderedDict, defaultdict, deque, Decimal, Fraction, Enum, IntEnum)
_NAMES: dict[str, Any] = {
    **{kind.__name__: kind for kind in _TYPES},
    "__name__": "pairs",
    "namedtuple": named,
    "nested": _nested,
    "nan": float("nan"),
    "inf": float("inf"),
    "null": None,
    "true": True,
    "false": False,
}


def _same_value(got: str, expected: str, *, lenient: bool) -> bool:
    """Whether the value of the source ``got``, after its way out of a box, equals that of ``expected``."""
    try:
        returned = decode(encoded(eval(got, _NAMES)))  # noqa: S307
    except (BadValue, TypeError, RecursionError):
        return False
    return same(tree_of(eval(expected, _NAMES)), returned, tolerance=1e-9, lenient=lenient)  # noqa: S307


def test_values() -> None:
    for lenient, verdict, rows in (
        (False, True, value_pairs.STRICT_EQUAL),
        (False, False, value_pairs.STRICT_DIFFERENT),
        (True, True, value_pairs.LENIENT_EQUAL),
        (True, False, value_pairs.LENIENT_DIFFERENT),
    ):
        assert [pair for pair in rows if _same_value(*pair, lenient=lenient) is not verdict] == []


def test_program_output() -> None:
    for verdict, rows in ((True, output_pairs.EQUAL + output_pairs.VERSIONS), (False, output_pairs.DIFFERENT)):
        assert [(got, gold) for got, gold in rows if same_output(gold, got, tolerance=1e-9) is not verdict] == []
    assert [(got, gold) for got, gold in output_pairs.VERSIONS if same_output(gold, got, tolerance=1e-9, decimals=False)] == []


def test_answers_in_words() -> None:
    assert [pair for pair in word_pairs.EQUAL + word_pairs.HYPHENS if not exact_match(*pair)] == []
    assert [pair for pair in word_pairs.DIFFERENT + word_pairs.PERCENT if exact_match(*pair)] == []
    assert [pair for pair in word_pairs.PERCENT if not exact_match(*pair, percent=True)] == []
    assert [pair for pair in word_pairs.HYPHENS if exact_match(*pair, hyphens=True)] == []


@pytest.mark.parametrize("read", [lambda text: parse_calls(text).calls, find_calls], ids=["parse_calls", "find_calls"])
def test_tool_calls(read: Any) -> None:
    assert [text for text, arguments in READ if read(text) != (ToolCall("f", arguments),)] == []
    assert [text for text in REFUSED if [type(call) for call in read(text)] != [BadCall]] == []


def test_the_text_of_a_call_never_becomes_prose() -> None:
    assert [text for text, _ in READ if parse_calls(text).prose not in ("", "I call.\n Done.")] == []
    assert [text for text in REFUSED if "<" in parse_calls(text).prose] == []
    assert parse_calls("no call") == ParsedText("no call", ())


def test_code_blocks() -> None:
    assert [text for text, code in FENCED if fenced_code(text, "python", "py", "") != code] == []
    assert [text for text in UNFENCED if fenced_code(text, "python", "py", "") is not None] == []


def test_there_are_hundreds_of_pairs_of_each_kind() -> None:
    equal = [value_pairs.STRICT_EQUAL, value_pairs.LENIENT_EQUAL, output_pairs.EQUAL, word_pairs.EQUAL, equality_maths.EQUAL]
    different = [value_pairs.STRICT_DIFFERENT, value_pairs.LENIENT_DIFFERENT, output_pairs.DIFFERENT, word_pairs.DIFFERENT]
    assert sum(len(set(rows)) for rows in equal) + len(READ) + len(FENCED) >= 900
    assert sum(len(set(rows)) for rows in [*different, equality_maths.DIFFERENT]) + len(REFUSED) + len(UNFENCED) >= 1080


def test_a_megabyte_of_stars_is_normalized_in_linear_time() -> None:
    assert normalize("*" * 3_000_000)
    assert exact_match("***5***", ["5"])
    assert not exact_match("**", ["5"])


def test_an_answer_may_be_long_if_an_accepted_answer_is() -> None:
    assert exact_match("Paris" + "!" * 1990, ["Rome", "Paris"])
    assert not exact_match("Paris" + "!" * 2000, ["Rome", "Paris"])
    assert exact_match("Paris" + "!" * 2000, ["Rome", "Paris " * 500, "Paris"])
