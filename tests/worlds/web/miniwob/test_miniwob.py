"""MiniWoB++ in a real browser: the oracles solve their tasks, and an episode does not depend on what was shown before it."""

import asyncio
import importlib.util
import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
if importlib.util.find_spec("miniwob") is None:
    pytest.skip("miniwob is not installed", allow_module_level=True)

from tests.worlds.web.sites.playing import in_browser

from palestra.errors import InfrastructureError, UsageError
from palestra.registry import list_envs
from palestra.trajectory import Image, text_of
from palestra.worlds.web.browsers import shared_browsers
from palestra.worlds.web.miniwob.env import MiniWob
from palestra.worlds.web.miniwob.floors import FLOORS
from palestra.worlds.web.miniwob.solving import SOLVERS
from palestra.worlds.web.miniwob.tasks import TASKS


async def play(env: MiniWob, seed: int) -> tuple[list[str], float]:
    """The observations of an episode of the oracle, and its reward."""
    observation, _ = await env.reset(seed=seed)
    seen = [text_of(observation)]
    while True:
        step = await env.step(await env.oracle())
        seen.append(text_of(step.observation))
        if step.terminated or step.truncated:
            return seen, step.reward


def test_every_page_of_the_package_is_an_id() -> None:
    found = importlib.util.find_spec("miniwob")
    assert found is not None
    assert found.origin is not None
    pages = {path.stem for path in (Path(found.origin).parent / "html" / "miniwob").glob("*.html")}
    assert set(TASKS) == pages
    assert len(TASKS) == 130
    assert {known.id for known in list_envs("web:miniwob-*")} == {f"web:miniwob-{name}" for name in TASKS}
    assert len(SOLVERS) >= 60
    assert set(SOLVERS) <= set(TASKS)


def test_floors_belong_to_tasks_and_are_higher_without_the_penalty() -> None:
    assert set(FLOORS) <= set(TASKS)
    assert all(0 <= floor.with_penalty <= floor.without_penalty <= 1 for floor in FLOORS.values())
    assert MiniWob("click-button").floor == FLOORS["click-button"].with_penalty
    assert MiniWob("click-button", penalty=False).floor == FLOORS["click-button"].without_penalty
    assert MiniWob("book-flight").floor == 0.0
    with pytest.raises(UsageError, match="no task 'click-nothing'"):
        MiniWob("click-nothing")


Played = dict[tuple[str, int], tuple[list[str], float]]


async def played(names: Iterable[str], seeds: range) -> Played:
    """Task and seed → the observations of the oracle's episode and its reward; the first observation if there is no oracle.

    The browsers are new ones.
    """
    found: Played = {}
    places = asyncio.Semaphore(4)

    async def one(name: str) -> None:
        async with places:
            env = MiniWob(name)
            try:
                for seed in seeds:
                    if name in SOLVERS:
                        found[name, seed] = await play(env, seed)
                    else:
                        found[name, seed] = [text_of((await env.reset(seed=seed))[0])], 0.0
            finally:
                await env.close()

    async with shared_browsers():
        await asyncio.gather(*map(one, names))
    return found


@in_browser
@pytest.mark.parametrize("seeds", [3, pytest.param(20, marks=[pytest.mark.full, pytest.mark.timeout(7200)])])
async def test_oracles_solve_their_tasks(seeds: int) -> None:
    missed = [key for key, (_, reward) in (await played(SOLVERS, range(seeds))).items() if reward <= 0]
    assert len(missed) <= 0.01 * (seeds - 3) * len(SOLVERS), missed


@in_browser
@pytest.mark.parametrize(
    "tasks", [("enter-date", "count-shape", "click-pie"), pytest.param(tuple(TASKS), marks=pytest.mark.full)]
)
@pytest.mark.timeout(7200)
async def test_two_browsers_show_the_same(tasks: tuple[str, ...]) -> None:
    first, second = [await played(tasks, range(2)) for _ in range(2)]
    assert {key for key in first if first[key] != second[key]} == set()


@in_browser
async def test_wrong_actions_are_answered_and_the_last_turn_ends_the_episode() -> None:
    env = MiniWob("click-test-2", max_turns=4)
    try:
        observation, info = await env.reset(seed=1)
        assert "Task: Click button ONE." in text_of(observation)
        assert info["max_turns"] == 4
        step = await env.step("hello")
        assert text_of(step.observation).startswith("There is no action 'hello'")
        assert step.info["format_error"]
        assert "There is no element e99 now." in text_of((await env.step("click [e99]")).observation)
        assert "There is no key 'Nokey'" in text_of((await env.step("press [Nokey]")).observation)
        last = await env.step("wait")
        assert (last.reward, last.terminated, last.truncated) == (0.0, False, True)
    finally:
        await env.close()


@in_browser
async def test_a_wrong_click_costs_and_a_screenshot_is_a_picture() -> None:
    env = MiniWob("click-test-2", picture=True)
    try:
        observation, _ = await env.reset(seed=1)
        assert isinstance(observation, tuple)
        assert isinstance(observation[1], Image)
        assert observation[1].data.startswith(b"\x89PNG")
        two = next(line for line in text_of(observation).splitlines() if '"TWO"' in line)
        step = await env.step(f"click {two.split()[0]}")
        assert (step.reward, step.terminated, step.info["success"]) == (-1.0, True, False)
    finally:
        await env.close()


@pytest.mark.gate
@in_browser
async def test_a_browser_that_dies_is_an_infrastructure_failure_and_the_next_episode_has_another() -> None:
    env = MiniWob("click-test-2")
    try:
        await env.reset(seed=1)
        os.kill(children_with("user-data-dir")[0], signal.SIGKILL)
        with pytest.raises(InfrastructureError, match="the browser has died"):
            await env.step("click [e1]")
        assert not await env.healthy()
        assert (await play(env, 1))[1] == 1.0
    finally:
        await env.close()
    assert children_with("palestra-web-") == []


def children_with(word: str) -> list[int]:
    """The processes below this one whose command line has ``word``."""
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            below = [int(number) for number in task.read_text().split()]
            waiting += below
            found += [child for child in below if word in Path(f"/proc/{child}/cmdline").read_text(errors="replace")]
    return found
