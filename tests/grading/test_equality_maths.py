"""The maths grader grants the equality of docs/reference/equality.md, and no other."""

from typing import Any

import pytest
from tests.grading.equality_maths import DIFFERENT, EQUAL, READINGS
from tests.grading.varied_pairs import varied
from tests.tables import Pair

from palestra.grading.answers import reduced
from palestra.grading.maths import MathsGrader
from palestra.grading.maths_worker import matched
from palestra.grading.readings import Readings

pytest.importorskip("math_verify", reason="math-verify is not installed")


async def _granted(rows: list[Pair], readings: Readings | None = None) -> list[Pair]:
    async with MathsGrader() as grader:
        return [pair for pair in rows if await grader.equivalent(*pair, readings)]


@pytest.mark.slow
async def test_what_the_page_calls_equal_is_equal_and_what_it_calls_different_is_not() -> None:
    assert min(len(set(EQUAL)), len(set(DIFFERENT) - set(EQUAL))) >= 590
    assert await _granted([*EQUAL, *DIFFERENT]) == EQUAL


@pytest.mark.slow
async def test_a_keyword_takes_the_other_reading() -> None:
    for keywords, equal, rows in READINGS:
        assert await _granted(rows, Readings(**keywords)) == (rows if equal else []), keywords  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.full
async def test_varied_forms_are_decided_right() -> None:
    equal, different = varied()
    assert min(len(equal), len(different)) >= 250
    assert await _granted([*equal, *different]) == equal


def test_pairs_that_need_no_worker_are_decided_at_once() -> None:
    equal, different = varied()
    for rows, verdict in ((EQUAL, True), (DIFFERENT, False), (equal, True), (different, False)):
        quick = {pair: answer for pair in rows if isinstance(answer := reduced(*pair), bool)}
        assert [pair for pair, answer in quick.items() if answer is not verdict] == []
        assert len(quick) > len(rows) // 2


def test_a_sample_of_the_pairs_that_need_a_worker() -> None:
    for rows, verdict in ((EQUAL, True), (DIFFERENT, False)):
        demands = {pair: answer for pair in rows if not isinstance(answer := reduced(*pair), bool)}
        wrong = [pair for pair in list(demands)[::6] if all(matched(*demand) for demand in demands[pair]) is not verdict]
        assert wrong == []


@pytest.mark.parametrize(("keywords", "message"), [({"pairs": "sets"}, "points, intervals"), ({"decimals": 0}, "decimals")])
def test_a_reading_that_does_not_exist_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Readings(**keywords)
