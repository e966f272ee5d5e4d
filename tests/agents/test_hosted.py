"""A plain program in its worker: every action gets its own observation, from which thread or by which way it came."""

import asyncio
import sys
import threading
from typing import Any

import pytest
from tests.agents.test_program import program

from palestra.agents import Gateway, performing
from palestra.agents.hosted import HostedProgram, ProgramContext, Start
from palestra.agents.performing import InWorkerProcess, Move
from palestra.core import AsyncEnv, Step
from palestra.rollout import rollout
from palestra.trajectory import StopReason, Task

START = Start("", "", "", "m", ({"role": "user", "content": "Go."},), Task("program"))


def _quickly(hosted: HostedProgram, trials: int) -> list[tuple[str, str]]:
    """Let two threads take ``trials`` steps each, answer each move with its text, and return what each thread got."""
    got: list[tuple[str, str]] = []

    def take(name: str) -> None:
        for trial in range(trials):
            action = f"{name}{trial}"
            got.append((action, hosted._take(action)))

    threads = [threading.Thread(target=take, args=(name,), daemon=True) for name in "AB"]
    for thread in threads:
        thread.start()
    for _ in range(2 * trials):
        _, move = hosted._moves.get(timeout=10)
        hosted._observations.put((f"saw {move}", False))
    for thread in threads:
        thread.join(timeout=10)
    return got


def test_steps_of_two_threads_keep_their_observations() -> None:
    hosted = HostedProgram("tests.agents.programs:plain")
    hosted._context = ProgramContext(START, hosted._take)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        got = _quickly(hosted, 300)
    finally:
        sys.setswitchinterval(before)
    assert len(got) == 600
    assert [pair for pair in got if pair[1] != f"saw {pair[0]}"] == []


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


class _Echo(AsyncEnv):
    """Answers every action with its text and ends after 12. A step of the program lasts until a call by MCP has arrived."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._seen: list[str] = []

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "Go.", {}

    async def step(self, action: str) -> Step:
        self._seen.append(action)
        if not action.startswith("mcp") and sum(one.startswith("mcp") for one in self._seen) < 4:
            while not self._gateway._pending:
                await asyncio.sleep(0.001)
        return Step(f"saw {action}", 0.0, len(self._seen) == 12, False, {})


@pytest.mark.slow
async def test_a_plain_program_steps_in_threads_and_by_mcp_at_the_same_time() -> None:
    policy = program("tests.agents.programs:in_threads_and_by_mcp")
    (trajectory,) = [one async for one in rollout(lambda: _Echo(policy.gateway), policy, n=1, deadline=30.0)]
    assert trajectory.stop is StopReason.TERMINATED, trajectory.failures
    actions = [turn.action for turn in trajectory.turns]
    assert sorted(actions) == sorted(f"{name}-{number}" for name in ("mcp", "one", "two") for number in range(4))
