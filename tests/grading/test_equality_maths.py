"""The maths grader grants the equality of docs/reference/equality.md, and no other."""

import pytest
from tests.grading.equality_maths import DIFFERENT, EQUAL, REPORTED_DIFFERENT, REPORTED_EQUAL, Pair

from palestra.grading.maths import MathsGrader

pytest.importorskip("math_verify", reason="math-verify is not installed")

ALL_EQUAL = [*EQUAL, *REPORTED_EQUAL]
ALL_DIFFERENT = [*DIFFERENT, *REPORTED_DIFFERENT]


async def _equal(rows: list[Pair]) -> list[Pair]:
    async with MathsGrader() as grader:
        return [pair for pair in rows if await grader.equivalent(*pair)]


def test_the_corpus_has_three_hundred_pairs_of_each_kind_and_none_twice() -> None:
    assert min(len(ALL_EQUAL), len(ALL_DIFFERENT)) >= 300
    assert len({*ALL_EQUAL, *ALL_DIFFERENT}) == len(ALL_EQUAL) + len(ALL_DIFFERENT)


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="the page and its corpus were written before the grader was mended")
async def test_what_the_page_calls_equal_is_equal() -> None:
    granted = set(await _equal(ALL_EQUAL))
    assert [pair for pair in ALL_EQUAL if pair not in granted] == []


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="the page and its corpus were written before the grader was mended")
async def test_what_the_page_calls_different_is_different() -> None:
    assert await _equal(ALL_DIFFERENT) == []
