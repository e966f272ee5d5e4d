"""How questions are shared out among workers. These workers answer what the question tells them, and need no sympy."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.tables import pairs

from palestra.errors import InfrastructureError
from palestra.grading import maths, maths_worker
from palestra.grading.answers import Demand
from palestra.grading.maths import MathsGrader

pytest.importorskip("math_verify", reason="math-verify is not installed")

WORKERS = """
import json, socket, sys, threading, time
def serve(end):
    end.sendall(b"R")
    while size := end.recv(4):
        reply = json.loads(end.recv(int.from_bytes(size, "big")))[0][0][0][0][0]
        if "S" in reply:
            time.sleep(0.2)
        if "Q" not in reply:
            end.sendall(reply[-1].encode())
        else:
            end.shutdown(socket.SHUT_RDWR)
for end in sys.argv[1:]:
    threading.Thread(target=serve, args=[socket.socket(fileno=int(end))]).start()
"""


@pytest.fixture
async def grader(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MathsGrader]:
    start = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        assert command[2] == "0.5", "seconds of CPU time"
        return start([sys.executable, "-c", WORKERS, *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(maths, "reduced", lambda answer, gold, _: [Demand([[[(part, gold, 0)]]]) for part in answer.split()])
    async with asyncio.timeout(20), MathsGrader() as grader:
        yield grader


async def test_every_demand_of_an_answer_must_hold(grader: MathsGrader) -> None:
    said = {answer: await grader.equivalent(answer, "") for answer in ("1", "0", "T", "N", "E", "1 1", "1 0 1")}
    assert said == {answer: answer in ("1", "1 1") for answer in said}
    assert grader.counts == {"quick": 0, "worker": 9, "timeout": 2, "error": 1}


async def test_as_many_questions_as_workers_are_asked_at_once(grader: MathsGrader) -> None:
    answers = ["S1", "S0", "1", "0", "1", "0"]
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(grader.equivalent(answer, "")) for answer in answers]
    assert [task.result() for task in asked] == [answer[-1] == "1" for answer in answers]


async def test_a_cancelled_question_keeps_its_worker_until_its_answer_has_come(grader: MathsGrader) -> None:
    cancelled = [asyncio.ensure_future(grader.equivalent("S1", "")) for _ in range(2)]
    await asyncio.sleep(0.05)
    for task in cancelled:
        task.cancel()
    assert [await grader.equivalent(answer, "") for answer in "010"] == [False, True, False]
    assert grader._group is not None
    while grader._group._free.qsize() < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert grader._group._free.qsize() == 2


async def test_a_worker_that_dies_takes_its_group_along_and_new_ones_start(grader: MathsGrader) -> None:
    first = grader._group
    assert first is not None
    waiting = [asyncio.ensure_future(grader.equivalent(answer, "")) for answer in ("S1", "SQ", "1", "1")]
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in told[1:]} <= {InfrastructureError, bool}
    assert isinstance(told[1], InfrastructureError)
    assert await grader.equivalent("1", "")
    assert grader._group is not first
    assert first.process.poll() is not None
    assert [worker.connection.fileno() for worker in first._workers] == [-1, -1]


async def test_closing_fails_the_questions_under_way_and_closes_their_sockets(grader: MathsGrader) -> None:
    group = grader._group
    assert group is not None
    cancelled, *others = [asyncio.ensure_future(grader.equivalent("S1", "")) for _ in range(4)]
    await asyncio.sleep(0.05)
    closing = asyncio.ensure_future(grader.close())
    cancelled.cancel()
    await closing
    assert {type(error) for error in await asyncio.gather(*others, return_exceptions=True)} == {InfrastructureError}
    assert [worker.connection.fileno() for worker in group._workers] == [-1, -1]


async def test_workers_that_do_not_start_are_an_infrastructure_failure(
    grader: MathsGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WORKERS", "import sys; sys.stdin.read()")
    with pytest.raises(InfrastructureError, match="did not start"):
        await MathsGrader().start()


ALIKE = pairs(r"""
\sqrt{8} ← 2\sqrt{2} ‖ (x+1)^2 ← x^2+2x+1 ‖ i^2 ← -1 ‖ x=5 ← 2x=10 ‖ x+y>3 ← 3<x+y ‖ \{1,2\} ← \{2,1\}
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix}1\\\frac{4}{2}\end{pmatrix}
""")
UNLIKE = pairs(r"""
\sqrt{8} ← 2\sqrt{3} ‖ x=5 ← 2x=11 ¦ y=5 ‖ x>3 ← x>4 ¦ y>3 ‖ (1,2] ← [1,2) ‖ \frac{1}{0} ← \frac{1}{0}
\begin{pmatrix}1\\2\end{pmatrix} ← \begin{pmatrix}1\\3\end{pmatrix} ¦ \begin{pmatrix}1&2\end{pmatrix}
not a formula { ← not a formula {
""")


def test_a_worker_compares_formulas_by_their_value() -> None:
    assert [pair for pair in ALIKE if not maths_worker.comparable(*pair, 0)] == []
    assert [pair for pair in UNLIKE if maths_worker.comparable(*pair, 0)] == []
    for gold, answer, right in (("0.333", "1/3", True), ("0.334", "1/3", False), ("0.3335", "667/2000", True)):
        assert maths_worker.comparable(answer, gold, 3) is right


SAME, OTHER = [("1", "1", 0)], [("1", "1", 0), ("1", "2", 0)]


@pytest.mark.parametrize(
    ("options", "paired", "covered"),
    [
        ([[SAME, None], [SAME, SAME]], True, True),
        ([[SAME], [SAME]], False, True),
        ([[SAME, SAME]], False, True),
        ([[SAME, None]], False, False),
        ([[SAME, OTHER]], False, False),
        ([[None, SAME], [OTHER, SAME]], False, False),
        ([[None, SAME], [SAME, OTHER]], True, True),
    ],
)
def test_a_worker_pairs_rows_with_columns(options: list[Any], paired: bool, covered: bool) -> None:
    assert (maths_worker.matched(options, False), maths_worker.matched(options, True)) == (paired, covered)
