"""WebArena-Verified: its tasks and its grader in a process of their own, and its format on Palestra's own sites."""

import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.envs.web.arena.making import ADDRESSES, OWN, PLACES, TRACES, answer_of, boxes_of, enter_all, next_action

from palestra.envs.web.arena.env import WebArenaVerified
from palestra.envs.web.arena.recording import Recording, entry
from palestra.envs.web.arena.worker import PYTHON, Judge, Package
from palestra.errors import EnvError, InfrastructureError, MissingExtra, UsageError

PACKAGE = Package(tuple(sorted(ADDRESSES.items())))
FAKE = """#!{python}
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "open":
        answer = [{{"id": 7, "sites": ["shopping"], "goal": "Buy.", "start": asked["addresses"]["shopping"], "kind": "mutate"}}]
    elif asked["answer"] == "die":
        sys.exit(1)
    elif asked["answer"] == "fail":
        answer = {{"failure": "ValueError: no such data"}}
    else:
        error = "broken" if asked["answer"] == "odd" else ""
        answer = {{"score": float(asked["answer"] == "right"), "status": "done", "error": error}}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of the Python with the package."""
    program = tmp_path / "python"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(program))


@pytest.mark.usefixtures("fake")
async def test_the_process_grades_and_its_death_or_failure_is_never_a_score() -> None:
    judge = Judge(PACKAGE)
    try:
        (task,) = await judge.tasks()
        assert (task.id, task.sites, task.start) == (7, ("shopping",), "http://shop.test")
        assert [(await judge.grade(7, answer, [])).score for answer in ("right", "wrong")] == [1.0, 0.0]
        with pytest.raises(InfrastructureError, match="does not answer"):
            await judge.grade(7, "die", [])
        assert (await judge.grade(7, "right", [])).score == 1.0  # in a new process
        for answer, words in (("fail", "no such data"), ("odd", "cannot grade its task 7: broken")):
            with pytest.raises(EnvError, match=words):
                await judge.grade(7, answer, [])
    finally:
        await judge.close()


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


def test_the_stored_files_are_what_the_page_says() -> None:
    traces, tasks = json.loads(TRACES.read_text()), json.loads(OWN.read_text())
    assert len(traces) == len(tasks) == len(PLACES) == 20
    assert {one["score"] for one in traces} == {0.0, 1.0}
    assert len({one["intent"] for one in tasks}) == 20


needs_package = pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} names no Python with webarena-verified")


@needs_package
@pytest.mark.worlds
async def test_the_package_has_812_tasks_and_grades_stored_traces_as_it_does_alone() -> None:
    judge = Judge(PACKAGE)
    try:
        tasks = await judge.tasks()
        assert len(tasks) == len({task.id for task in tasks}) == 812
        assert {task.kind for task in tasks} == {"retrieve", "mutate", "navigate"}
        assert all(bool(task.start) == (set(task.sites) <= set(ADDRESSES)) for task in tasks)
        for one in json.loads(TRACES.read_text()):
            assert (await judge.grade(one["task"], one["answer"], one["trace"])).score == one["score"], one["task"]
    finally:
        await judge.close()


async def played(place: int) -> tuple[float, float]:
    """The scores of one task: as the oracle of the errand does it, and with a wrong end."""
    scores = []
    env = WebArenaVerified(ADDRESSES, data=str(OWN), boxes=boxes_of(place), max_turns=40)
    try:
        for right in (True, False):
            await env.reset(seed=place)
            assert env.arena.id == place
            while right:
                action = next_action(env, place)
                if action.startswith("stop"):
                    break
                await env.step(action)
            said = action.removeprefix("stop [").removesuffix("]") if right else "something else"
            scores.append((await env.step(f"stop [{answer_of(env.arena.kind, said)}]")).reward)
    finally:
        await env.close()
    return scores[0], scores[1]


@needs_package
@pytest.mark.worlds
@pytest.mark.browser
@pytest.mark.timeout(3600)
async def test_twenty_tasks_in_its_format_run_on_our_own_sites() -> None:
    async with AsyncExitStack() as stack:
        await enter_all(stack)
        assert [await played(place) for place in range(len(PLACES))] == [(1.0, 0.0)] * 20
