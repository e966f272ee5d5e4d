"""Every grader grants the equality that docs/reference/equality.md promises, and no more."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections import namedtuple as named
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import pytest
from tests.call_pairs import FENCED, READ, REFUSED, UNFENCED
from tests.envs.terminal.check_pairs import RIGHT_FROM_FINDINGS, RIGHT_FROM_PAGE, WRONG_FROM_FINDINGS, WRONG_FROM_PAGE
from tests.grading import output_pairs, value_pairs, word_pairs
from tests.grading.value_pairs import Pairs

from palestra.calls import BadCall, ParsedText, parse_calls
from palestra.grading import exact_match, fenced_code
from palestra.grading.code import same_output
from palestra.grading.decoding import decode
from palestra.grading.text import normalize
from palestra.grading.values import BadValue, same, tree_of
from palestra.sandbox.inside.values import encoded
from palestra.tools import find_calls
from palestra.trajectory import ToolCall


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


_NAMES: dict[str, Any] = {
    "__name__": "pairs",
    "Counter": Counter,
    "OrderedDict": OrderedDict,
    "defaultdict": defaultdict,
    "deque": deque,
    "namedtuple": named,
    "Decimal": Decimal,
    "Fraction": Fraction,
    "Enum": Enum,
    "IntEnum": IntEnum,
    "nested": _nested,
    "nan": float("nan"),
    "inf": float("inf"),
    "null": None,
    "true": True,
    "false": False,
}


def _same_value(expected: str, got: str, *, lenient: bool) -> bool:
    """Whether the value of the source ``got``, after its way out of a box, equals that of ``expected``."""
    try:
        returned = decode(encoded(eval(got, _NAMES)))  # noqa: S307
    except (BadValue, TypeError, RecursionError):
        return False
    return same(tree_of(eval(expected, _NAMES)), returned, tolerance=1e-9, lenient=lenient)  # noqa: S307


@pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])
def test_values(lenient: bool) -> None:
    rows: tuple[Pairs, ...] = (
        (value_pairs.LENIENT_FROM_FINDINGS, value_pairs.LENIENT_FROM_PAGE)
        if lenient
        else (value_pairs.STRICT_FROM_FINDINGS, value_pairs.STRICT_FROM_PAGE)
    )
    assert [pair for pairs in rows for pair in pairs.equal if not _same_value(*pair, lenient=lenient)] == []
    assert [pair for pairs in rows for pair in pairs.different if _same_value(*pair, lenient=lenient)] == []


def test_program_output() -> None:
    equal = output_pairs.EQUAL_FROM_FINDINGS + output_pairs.EQUAL_FROM_PAGE
    different = output_pairs.DIFFERENT_FROM_FINDINGS + output_pairs.DIFFERENT_FROM_PAGE
    assert [pair for pair in equal if not same_output(*pair, tolerance=1e-9)] == []
    assert [pair for pair in different if same_output(*pair, tolerance=1e-9)] == []


def test_a_keyword_takes_decimals_for_words() -> None:
    assert [pair for pair in output_pairs.VERSIONS_EQUAL if not same_output(*pair, tolerance=1e-9)] == []
    assert [pair for pair in output_pairs.VERSIONS_EQUAL if same_output(*pair, tolerance=1e-9, decimals=False)] == []


def test_answers_in_words() -> None:
    equal = word_pairs.EQUAL_FROM_FINDINGS + word_pairs.EQUAL_FROM_PAGE
    different = word_pairs.DIFFERENT_FROM_FINDINGS + word_pairs.DIFFERENT_FROM_PAGE
    assert [(gold, given) for gold, given in equal if not exact_match(given, gold)] == []
    assert [(gold, given) for gold, given in different if exact_match(given, gold)] == []


def test_keywords_take_the_other_reading_of_percent_and_of_hyphens() -> None:
    for gold, given in word_pairs.PERCENT:
        assert exact_match(given, gold, percent=True), (gold, given)
        assert not exact_match(given, gold), (gold, given)
    for gold, given in word_pairs.HYPHENS:
        assert exact_match(given, gold), (gold, given)
        assert not exact_match(given, gold, hyphens=True), (gold, given)


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


def test_there_are_three_hundred_pairs_of_each_kind() -> None:
    values = [value_pairs.STRICT_FROM_FINDINGS, value_pairs.STRICT_FROM_PAGE]
    values += [value_pairs.LENIENT_FROM_FINDINGS, value_pairs.LENIENT_FROM_PAGE]
    equal = [
        *(pair for pairs in values for pair in pairs.equal),
        *output_pairs.EQUAL_FROM_FINDINGS,
        *output_pairs.EQUAL_FROM_PAGE,
        *word_pairs.EQUAL_FROM_FINDINGS,
        *word_pairs.EQUAL_FROM_PAGE,
        *READ,
        *FENCED,
        *RIGHT_FROM_FINDINGS,
        *RIGHT_FROM_PAGE,
    ]
    different = [
        *(pair for pairs in values for pair in pairs.different),
        *output_pairs.DIFFERENT_FROM_FINDINGS,
        *output_pairs.DIFFERENT_FROM_PAGE,
        *word_pairs.DIFFERENT_FROM_FINDINGS,
        *word_pairs.DIFFERENT_FROM_PAGE,
        *REFUSED,
        *UNFENCED,
        *WRONG_FROM_FINDINGS,
        *WRONG_FROM_PAGE,
    ]
    assert len(equal) >= 400
    assert len(different) >= 400


def test_a_megabyte_of_stars_is_normalized_in_linear_time() -> None:
    assert normalize("*" * 3_000_000)
    assert exact_match("***5***", ["5"])
    assert not exact_match("**", ["5"])


def test_an_answer_may_be_long_if_an_accepted_answer_is() -> None:
    assert exact_match("Paris" + "!" * 1990, ["Rome", "Paris"])
    assert not exact_match("Paris" + "!" * 2000, ["Rome", "Paris"])
    assert exact_match("Paris" + "!" * 2000, ["Rome", "Paris " * 500, "Paris"])
