"""A plain program in its worker: every action gets its own observation, from which thread or by which way it came."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from palestra.agents import performing
from palestra.agents.hosted import HostedProgram, ProgramContext, Start
from palestra.agents.performing import InWorkerProcess, Move
from palestra.core import AsyncEnv, Step
from palestra.trajectory import Content, Task

MESSAGES = ({"role": "system", "content": "Play."}, {"role": "user", "content": "Go."})
START = Start("", "", "", "m", MESSAGES, Task("program"))


def test_a_program_sees_all_messages_at_the_beginning_and_the_last_as_its_observation() -> None:
    context = ProgramContext(START, lambda action: "")
    assert (context.observation, tuple(context.messages)) == ("Go.", MESSAGES)


def in_two_threads(episode: Any) -> None:
    """A program that takes 300 steps in each of two threads, and fails if one gets another's observation."""

    def play(name: str) -> None:
        for action in (f"{name}{number}" for number in range(300)):
            assert (seen := episode.step(action)) == f"saw {action}", seen

    with ThreadPoolExecutor() as pool:
        list(pool.map(play, "AB"))


def test_steps_of_two_threads_keep_their_observations() -> None:
    hosted = HostedProgram(f"{__name__}:in_two_threads")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        action: Content
        action, info = hosted.reset(task=Task("program", params={"start": msgspec.to_builtins(START)}))
        steps = 0
        while info["action"]:
            action, _, _, _, info = hosted.step(json.dumps({"observation": f"saw {action}", "ended": False}))
            steps += 1
    finally:
        sys.setswitchinterval(before)
    assert steps == 600


class _Worker(AsyncEnv):
    """Stands for the worker process: its program takes the steps own-1, own-2, … and returns after the third."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.passed: list[str] = []

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return "own-1", {"action": True, "ended": False}

    async def step(self, action: str) -> Step:
        self.passed.append(action)
        ended = len(self.passed) == 3
        info = {"action": not ended, "ended": ended}
        return Step("" if ended else f"own-{len(self.passed) + 1}", 0.0, ended, False, info)

    async def close(self) -> None:
        pass


async def test_a_call_by_mcp_during_a_step_of_the_program_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performing, "InWorker", _Worker)
    performance = InWorkerProcess("tests.agents.programs:plain", START)
    async with asyncio.timeout(10):
        assert await performance.begin() == Move("own-1", False)
        by_mcp = asyncio.ensure_future(performance.actions.take("mcp-1"))
        await asyncio.sleep(0)
        assert await performance.proceed("saw own-1") == Move("mcp-1", False)
        assert await performance.proceed("saw mcp-1") == Move("own-2", False)
        assert "saw mcp-1" in await by_mcp
        assert await performance.proceed("saw own-2") == Move("own-3", False)
        assert await performance.proceed("saw own-3") == Move(None, True)
        await performance.finish("saw own-3", 1.0)
    worker = performance._env
    assert isinstance(worker, _Worker)
    assert [f"saw own-{number}" in passed for number, passed in enumerate(worker.passed, 1)] == [True] * 3
