import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.grading.hostile_answers import HOSTILE
from tests.grading.maths_forms import HONEST, WRONG

from palestra.errors import InfrastructureError
from palestra.grading.answers import reduced
from palestra.grading.maths import MathsGrader
from palestra.grading.notation import normal

pytest.importorskip("math_verify", reason="math-verify is not installed")


@pytest.fixture
async def grader() -> AsyncIterator[MathsGrader]:
    async with MathsGrader() as made:
        yield made


def _quick(answer: str, gold: str) -> bool | None:
    """Whether ``answer`` is ``gold``, where no worker is needed to tell."""
    found = reduced(answer, gold)
    return found if isinstance(found, bool) else None


@pytest.mark.parametrize(
    ("answer", "gold", "verdict"),
    [
        ("5\\%", "5.0\\%", True),
        ("(1,x)", "(1,2)", False),
        ("(1,000)", "1000", False),
        ("", "", False),
        ("1/0", "1/0", True),
        ("1/0", "5", None),
        ("(3+\\frac{1}{0})", "5", None),
        ("5", "-(3+\\frac{1}{0})", None),
        ("\\sqrt(x^(1/(2+y)))", "\\sqrt{x^{1/(2+y)}}", True),
        ("√ (2)+∛(3", "\\sqrt{2}+\\sqrt[3](3", True),
        ("7" * 5000, "7", False),
        ("7" * 4000, "7" * 4000, True),
        ("7" * 4001, "7" * 4001, False),
    ],
)
def test_what_can_be_seen_is_decided_at_once(answer: str, gold: str, verdict: bool | None) -> None:
    assert _quick(answer, gold) is verdict


@pytest.mark.parametrize("piece", ["^(1)", "^(", "\\sqrt(2)", "√ (", ")", "1,", "x=1,", "1 000 ", "½", "{,}", "1 cm ", "^(…)"])
def test_the_time_to_read_an_answer_grows_with_its_length_and_no_faster(piece: str) -> None:
    opening, nested, end = piece.partition("…")
    short, long = (opening * (size // len(piece)) + end * (size // len(piece) if nested else 0) for size in (475, 3800))
    # Linear work takes 8 times as long for 8 times the length, quadratic work 64 times. The fastest of several runs counts.
    assert min(_seconds(long) for _ in range(7)) < 24 * min(_seconds(short) for _ in range(7))


def _seconds(text: str) -> float:
    began = time.process_time()
    reduced(text, "\\sqrt{8}")
    return time.process_time() - began


async def test_simple_answers_start_no_worker() -> None:
    grader = MathsGrader()
    assert await grader.equivalent("42.0", "42")
    assert not await grader.equivalent("41", "42")
    assert grader._group is None
    assert grader.counts == {"quick": 2, "worker": 0, "timeout": 0, "error": 0}


@pytest.mark.slow
async def test_a_hostile_answer_costs_itself_and_nothing_else(grader: MathsGrader) -> None:
    for hostile in [*HOSTILE[::25], "\ud800"]:
        began = time.monotonic()
        assert not await grader.equivalent(hostile, "\\sqrt{8}")
        assert await grader.equivalent("2\\sqrt{2}", "\\sqrt{8}"), hostile
        # The limit is on a worker's processor time; wall time is checked, generously, on a machine that runs other tests.
        assert time.monotonic() - began < 60.0
    assert not Path("/tmp/palestra-owned").exists()


@pytest.mark.slow
async def test_an_answer_may_be_written_in_any_notation(grader: MathsGrader) -> None:
    lost = [(form, gold) for gold, forms in HONEST.items() for form in forms if not await grader.equivalent(form, gold)]
    assert lost == []
    assert sum(map(len, HONEST.values())) >= 700


@pytest.mark.slow
async def test_no_wrong_answer_passes(grader: MathsGrader) -> None:
    assert [pair for pair in WRONG if await grader.equivalent(*pair)] == []
    # The accepted answers of all questions are wrong for the others.
    golds = [gold for gold in HONEST if len(gold) > 1]
    for answer, gold in itertools.islice(itertools.product(golds[::9], golds[::7]), 120):
        same = answer in HONEST[gold] or gold in HONEST[answer]
        assert same or not await grader.equivalent(answer, gold), (answer, gold)


@given(st.text(max_size=60) | st.text(alphabet="12 ,()[]{}<>=≤x\\frac½²√-+^_/%", max_size=30))
def test_notation_is_total_and_keeps_its_own_form(text: str) -> None:
    assert _quick(text, "5") in (True, False, None)
    if normal(text) and len(text) < 4000:
        assert _quick(text, text) is True


@pytest.mark.slow
async def test_questions_fail_at_once_when_the_workers_are_killed() -> None:
    async with MathsGrader(workers=2, seconds=5.0) as grader:
        assert grader._group is not None
        process = grader._group.process
        async with asyncio.timeout(120):
            # They keep their workers busy for seconds; the others wait for a free one.
            asked = [asyncio.create_task(grader.equivalent("9^{9^{9^9}}+x", f"\\sqrt{{{n}}}")) for n in range(2, 62)]
            while grader.counts["worker"] < 60:
                await asyncio.sleep(0.01)
            began = time.monotonic()
            os.killpg(process.pid, signal.SIGKILL)
            told = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(error) for error in told} == {InfrastructureError}
        assert time.monotonic() - began < 60.0
        assert await grader.equivalent("2\\sqrt{2}", "\\sqrt{8}"), "new workers take the place of the dead"
