"""WebArena-Verified: its tasks and its grader in a process of their own."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.answering import answering
from tests.fake_python import fake_python
from tests.worlds.web.arena.test_recording import BROWSER, compressed

from palestra.errors import EnvError, InfrastructureError, MissingExtra, UsageError
from palestra.trajectory import StopReason
from palestra.worlds.web.arena import judge as judging
from palestra.worlds.web.arena.env import WebArenaVerified
from palestra.worlds.web.arena.recording import Recording, entry
from palestra.worlds.web.arena.worker import PYTHON, Judge, Package
from palestra.worlds.web.sites.errands import Errand

ADDRESSES = {"shopping": "http://shop.test", "reddit": "http://forum.test", "gitlab": "http://tracker.test"}
PACKAGE = Package(tuple(sorted(ADDRESSES.items())))
FAKE = """import json, sys
opened = False
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "open":
        opened = True
        starts = [asked["addresses"]["shopping"]]
        answer = [{"id": 7, "sites": ["shopping"], "goal": "Buy.", "starts": starts, "kind": "mutate"}]
    elif asked["answer"] == "die":
        sys.exit(1)
    elif asked["answer"] == "hang":
        sys.stdin.read()
    elif not opened:
        answer = {"failure": "the tasks were not read"}
    elif asked["answer"] == "fail":
        answer = {"failure": "ValueError: no such data"}
    else:
        error = "broken" if asked["answer"] == "odd" else ""
        answer = {"score": float(asked["answer"] == "right"), "status": "done", "error": error}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of the Python with the package."""
    monkeypatch.setenv(PYTHON, fake_python(tmp_path, FAKE))


@pytest.mark.usefixtures("fake")
async def test_the_process_grades_and_its_death_or_failure_is_never_a_score() -> None:
    judge = Judge(PACKAGE)
    try:
        (task,) = await judge.tasks()
        assert (task.id, task.sites, task.starts) == (7, ("shopping",), ("http://shop.test",))
        assert [(await judge.grade(7, answer, [])).score for answer in ("right", "wrong")] == [1.0, 0.0]
        with pytest.raises(InfrastructureError, match="does not answer"):
            await judge.grade(7, "die", [])
        assert (await judge.grade(7, "right", [])).score == 1.0  # in a new process
        for answer, words in (("fail", "no such data"), ("odd", "cannot grade its task 7: broken")):
            with pytest.raises(EnvError, match=words):
                await judge.grade(7, answer, [])
    finally:
        await judge.close()


@pytest.mark.usefixtures("fake")
async def test_a_cancelled_grading_costs_the_others_nothing() -> None:
    judge = Judge(PACKAGE)
    try:
        await judge.tasks()
        first, *others = [asyncio.create_task(judge.grade(7, said, [])) for said in ("hang", "right", "wrong", "right")]
        await asyncio.sleep(0)  # the first one has its turn, and the others wait
        first.cancel()
        assert [found.score for found in await asyncio.gather(*others)] == [1.0, 0.0, 1.0]
        assert first.cancelled()
    finally:
        await judge.close()


EVENT = {
    "url": "__SHOPPING__/rest/totals",
    "http_method": "POST",
    "response_status": 201,
    "response_content": {"$.items[0].name": "Easel"},
}
ANSWER = {"task_type": "mutate", "status": "SUCCESS", "retrieved_data": None}
TASK = {
    "sites": ["shopping"],
    "task_id": 0,
    "intent_template_id": 0,
    "start_urls": ["__SHOPPING__"],
    "intent": "Buy.",
    "intent_template": "Buy.",
    "instantiation_dict": {},
    "revision": 1,
    "eval": [
        {"evaluator": "AgentResponseEvaluator", "results_schema": {"type": "null"}, "expected": ANSWER},
        {"evaluator": "NetworkEventEvaluator", "expected": EVENT},
    ],
}


@pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} names no Python with webarena-verified")
@pytest.mark.worlds
async def test_the_package_reads_its_tasks_and_grades_recorded_requests(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps([TASK]))
    async with answering(compressed) as address:
        judge, own = Judge(PACKAGE), Judge(Package((("shopping", address),), str(tmp_path / "tasks.json")))
        try:
            tasks = await judge.tasks()
            assert len({task.id for task in tasks}) == 812
            assert all(bool(task.starts) == (set(task.sites) <= set(ADDRESSES)) for task in tasks)
            sites = Recording({address.removeprefix("http://")})
            await sites.visit("POST", f"{address}/rest/totals", BROWSER, b'{"cart": 3}')
            (good,) = sites.entries
            right = json.dumps({**ANSWER, "task_type": "MUTATE", "error_details": None})
            assert (await own.grade(0, right, [good])).score == 1.0
            bare = {**good, "response": {**good["response"], "content": {}}}
            assert (await own.grade(0, right, [bare])).score == 0.0
            found = await own.grade(0, '{"task_type": 5}', [good])
            assert (found.score, found.status) == (0.0, "error")
            with pytest.raises(EnvError, match=r"cannot grade its task 0: .*NetworkEventEvaluator"):
                await own.grade(0, right, [{**good, "response": {}}])
        finally:
            await judge.close()
            await own.close()


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ([("AgentResponse", "success", "", []), ("NetworkEvent", "error", "no such key", [])], "no such key"),
        ([("NetworkEvent", "error", "", ["odd", "worse"])], "odd; worse"),
        ([("NetworkEvent", "error", "", [])], "NetworkEventEvaluator gives no reason"),
        ([("AgentResponse", "error", "an int has no strip", []), ("NetworkEvent", "failure", "", [])], ""),
    ],
)
def test_only_an_error_in_an_evaluator_of_requests_is_no_score(
    results: list[tuple[str, str, str, list[str]]], error: str
) -> None:
    evaluators = [
        SimpleNamespace(
            evaluator_name=f"{name}Evaluator",
            status=status,
            error_msg=message or None,
            assertions=[SimpleNamespace(error_msg=one) for one in inside] or None,
        )
        for name, status, message, inside in results
    ]
    result = SimpleNamespace(score=0.0, status=SimpleNamespace(value="error"), error_msg=None, evaluators_results=evaluators)
    graded = judging._graded(SimpleNamespace(evaluate_task=lambda **_: result), {"task": 7, "answer": "", "trace": []})
    assert graded == {"score": 0.0, "status": "error", "error": error}


async def test_at_the_turn_limit_the_package_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON, raising=False)  # a question would raise
    env = WebArenaVerified(ADDRESSES, max_turns=1)
    env._judge = Judge(PACKAGE)
    env._current = cast("Any", SimpleNamespace(sites=env._new_sites(), actions=[]))
    env.errand = Errand("7", "Buy.", "http://shop.test", lambda walk: "")
    step = await env.step("fly [e1]")
    assert (step.reward, step.terminated, step.truncated) == (0.0, False, True)
    assert (step.info["success"], step.info["stop_reason"]) == (False, StopReason.TURN_LIMIT)


def test_addresses_are_compared_as_a_browser_writes_them() -> None:
    env = WebArenaVerified({"shopping": "http://Shop.Test:80/Start", "reddit": "http://Forum.test:8080"})
    assert env._package.addresses == (("reddit", "http://forum.test:8080"), ("shopping", "http://shop.test/Start"))
    assert env._new_sites().hosts == ["forum.test:8080", "shop.test"]


async def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PYTHON, raising=False)
    with pytest.raises(MissingExtra, match=f"webarena-verified.*set {PYTHON}"):
        await Judge(PACKAGE).tasks()
    with pytest.raises(UsageError, match="must begin with http://"):
        WebArenaVerified({"shopping": "https://shop.test"})


def test_a_request_is_an_entry_of_an_archive() -> None:
    asked = ("POST", "http://a.test/x?b=1", [("Content-Type", "application/json")], b'{"c": 2}')
    made = entry(asked, (302, [("Location", "/y"), ("Set-Cookie", "d=3; Path=/")], b""))
    assert made["request"]["postData"] == {"mimeType": "application/json", "text": '{"c": 2}'}
    assert made["request"]["queryString"] == [{"name": "b", "value": "1"}]
    assert made["response"]["redirectURL"] == "http://a.test/y"
    assert made["response"]["cookies"] == [{"name": "d", "value": "3"}]


async def test_other_addresses_are_refused_and_not_recorded() -> None:
    sites = Recording({"shop.test:7770"})
    assert sites.hosts == ["shop.test:7770"]
    for url in ("http://shop.test/", "http://localhost:7770/", "http://shop.test:7770@evil.test/"):
        assert (await sites.visit("GET", url, [], b""))[0] == 403
    assert sites.entries == []
