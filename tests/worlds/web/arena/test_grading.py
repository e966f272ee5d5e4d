"""The checks of WebArena at the end of an episode, without a browser."""

import threading
from typing import Any

import pytest

from palestra.authoring.graders import FunctionGrader
from palestra.errors import GraderError
from palestra.worlds.web.arena import grading
from palestra.worlds.web.arena.grading import Ending, answer_passes, contents_pass, pages_pass
from palestra.worlds.web.arena.original import WebArena
from palestra.worlds.web.arena.recording import Passing
from palestra.worlds.web.arena.tasks import Call, Target, WebTask

SHOP = {"shopping": "http://shop.test"}


def ending(sites: Passing, shop: str = "http://shop.test") -> Ending:
    """An end at which no page may be looked at."""
    return Ending(None, sites, None, None, shop, ("admin", "secret"))  # type: ignore[arg-type]


async def test_a_judge_reads_the_answers_that_are_compared_by_meaning() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    async def judge(answer: str, one: dict[str, Any]) -> bool:
        asked.append((answer, one))
        return one["answer"] in answer

    grader = FunctionGrader(judge)
    similar, impossible = WebTask(3, (), "Why?", similar=("rain", "wind")), WebTask(4, (), "Why?", impossible="no shop")
    assert await answer_passes(similar, "rain and wind", grader)
    assert not await answer_passes(similar, "rain", grader)
    assert asked[0] == ("rain and wind", {"question": "Why?", "answer": "rain", "kind": "answer"})
    asked.clear()
    assert await answer_passes(impossible, "N/A", grader)
    assert not asked
    assert await answer_passes(impossible, "there is no shop", grader)
    assert asked[0][1]["kind"] == "reason"
    with pytest.raises(GraderError, match="ZeroDivisionError"):
        await answer_passes(similar, "x", FunctionGrader(lambda answer, one: 1 / 0))


async def test_a_judge_that_does_not_answer_is_an_error_of_the_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "JUDGE_SECONDS", 0.05)
    task, asked = WebTask(3, (), "Why?", similar=("rain",)), threading.Event()
    env = WebArena(SHOP, judge=lambda answer, one: asked.wait(10.0))  # a plain function: it must not block the loop
    try:
        with pytest.raises(GraderError, match=r"did not answer within 0\.05 s"):
            await answer_passes(task, "x", env._judge)
    finally:
        asked.set()
        await env.close()


def test_contents_are_compared_without_entities() -> None:
    assert contents_pass(Target("last", "", includes=(("a & b", "c"), ("d",))), "<p>A &amp; B, D</p>")
    assert not contents_pass(Target("last", "", includes=(("a", "c"), ("e",))), "a")
    assert contents_pass(Target("last", "", exact="5"), " 5 ")
    assert not contents_pass(Target("last", "", exact=""), "None")


class Answering(Passing):
    """Sites that always give the same answer."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__({"shop.test"})
        self._answer = status, list[tuple[str, str]](), body.encode()

    async def visit(self, *asked: Any) -> Any:
        return self._answer


@pytest.mark.parametrize(("status", "body"), [(401, "{}"), (200, "<html>"), (200, '{"items": []}'), (200, "3")])
async def test_a_shop_that_does_not_answer_the_grader_is_no_score(status: int, body: str) -> None:
    task = WebTask(5, (), "Buy.", targets=(Target(Call("shopping_get_latest_order_url", ()), "", exact="x"),))
    with pytest.raises(GraderError, match="the shop answers"):
        await pages_pass(task, ending(Answering(status, body)))
