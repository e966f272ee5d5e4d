"""The maths grader grants the equality of docs/reference/equality.md, and no other."""

from typing import Any

import pytest
from tests.grading.equality_maths import DIFFERENT, EQUAL, READINGS, REPORTED_DIFFERENT, REPORTED_EQUAL, Pair

from palestra.grading.answers import reduced
from palestra.grading.maths import MathsGrader
from palestra.grading.maths_worker import matched
from palestra.grading.readings import Readings

pytest.importorskip("math_verify", reason="math-verify is not installed")

ALL_EQUAL = [*EQUAL, *REPORTED_EQUAL]
ALL_DIFFERENT = [*DIFFERENT, *REPORTED_DIFFERENT]


async def _equal(rows: list[Pair], readings: Readings | None = None) -> list[Pair]:
    async with MathsGrader() as grader:
        return [pair for pair in rows if await grader.equivalent(*pair, readings)]


def test_the_corpus_has_three_hundred_pairs_of_each_kind_and_none_twice() -> None:
    assert min(len(ALL_EQUAL), len(ALL_DIFFERENT)) >= 300
    assert len({*ALL_EQUAL, *ALL_DIFFERENT}) == len(ALL_EQUAL) + len(ALL_DIFFERENT)


@pytest.mark.slow
async def test_what_the_page_calls_equal_is_equal() -> None:
    granted = set(await _equal(ALL_EQUAL))
    assert [pair for pair in ALL_EQUAL if pair not in granted] == []


@pytest.mark.slow
async def test_what_the_page_calls_different_is_different() -> None:
    assert await _equal(ALL_DIFFERENT) == []


@pytest.mark.slow
async def test_a_keyword_takes_the_other_reading() -> None:
    for keywords, equal, different in READINGS:
        assert await _equal([*equal, *different], Readings(**keywords)) == equal, keywords  # type: ignore[arg-type]


async def test_a_sample_of_the_corpus_that_needs_no_worker() -> None:
    for rows, verdict in ((ALL_EQUAL, True), (ALL_DIFFERENT, False)):
        quick = {pair: reduced(*pair) for pair in rows}
        assert [pair for pair, found in quick.items() if isinstance(found, bool) and found is not verdict] == []
        assert sum(isinstance(found, bool) for found in quick.values()) > len(rows) // 2


def test_a_sample_of_the_corpus_that_needs_a_worker() -> None:
    for rows, verdict in ((ALL_EQUAL, True), (ALL_DIFFERENT, False)):
        demands = {pair: found for pair in rows if not isinstance(found := reduced(*pair), bool)}
        sample = list(demands)[::6]
        assert [pair for pair in sample if all(matched(*demand) for demand in demands[pair]) is not verdict] == []


@pytest.mark.parametrize(
    ("keywords", "message"),
    [({"pairs": "sets"}, "pairs must be one of points, intervals"), ({"decimals": 0}, "decimals must be a whole number")],
)
def test_a_reading_that_does_not_exist_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Readings(**keywords)
