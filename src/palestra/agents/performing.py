"""Play a program move by move, whether it runs on this event loop or in a worker process."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from palestra.agents.hosted import HostedProgram, ProgramContext, Start
from palestra.core import AsyncEnv
from palestra.errors import EpisodeError
from palestra.trajectory import Content, Task, text_of
from palestra.workers import InWorker

__all__ = ["InProcess", "InWorkerProcess", "Move", "Performance"]


_STOPPING = 1.0
"""Seconds to wait for a program that was cancelled."""


class Move(NamedTuple):
    """What a program does next."""

    action: str | None
    """The action; ``None`` if the program ended without one."""
    ended: bool


class Performance(Protocol):
    """A running program."""

    async def begin(self) -> Move:
        """Start the program and return its first move."""
        ...

    async def proceed(self, observation: Content) -> Move:
        """Pass an observation to the program and return its next move."""
        ...

    async def finish(self, observation: Content, grace: float) -> None:
        """Pass the last observation, wait at most ``grace`` seconds, and stop the program. Never raises for its errors."""
        ...


class InProcess:
    """An async program, as a task of this event loop."""

    def __init__(self, run: Callable[[ProgramContext[Any]], Awaitable[Any]], start: Start) -> None:
        self._run = run
        self._context: ProgramContext[Awaitable[str]] = ProgramContext(start, self._take)
        self._task: asyncio.Task[Any] | None = None
        self._turn = asyncio.Lock()
        """Parallel tool calls of an agent take one step after the other."""
        self._action: asyncio.Future[str] | None = None
        self._answer: asyncio.Future[str] | None = None

    async def begin(self) -> Move:
        self._action = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._started())
        return await self._move()

    async def proceed(self, observation: Content) -> Move:
        self._action = asyncio.get_running_loop().create_future()
        self._pass(text_of(observation))
        return await self._move()

    async def finish(self, observation: Content, grace: float) -> None:
        self._context.done = True
        self._pass(text_of(observation))
        if self._task is None:
            return
        try:
            await asyncio.wait([self._task], timeout=grace)
        finally:
            self._task.cancel()  # without effect if it has ended
        await asyncio.wait([self._task], timeout=_STOPPING)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # the episode has its score: what the program does afterwards changes nothing

    async def _started(self) -> Any:
        return await self._run(self._context)

    async def _move(self) -> Move:
        assert self._task is not None
        assert self._action is not None
        await asyncio.wait([self._task, self._action], return_when=asyncio.FIRST_COMPLETED)
        if self._action.done():
            return Move(self._action.result(), False)
        result = self._task.result()
        return Move(None if result is None else str(result), True)

    async def _take(self, action: str) -> str:
        async with self._turn:
            if not self._context.done:
                self._answer = asyncio.get_running_loop().create_future()
                assert self._action is not None
                self._action.set_result(str(action))
                self._context.observation = await self._answer
            return self._context.observation

    def _pass(self, observation: str) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(observation)
        elif self._context.done:
            self._context.observation = observation


class InWorkerProcess:
    """A plain program in a worker process. A program that does not end is killed with its worker."""

    def __init__(self, program: str, start: Start, variables: tuple[str, ...] = ()) -> None:
        entry = f"{HostedProgram.__module__}:{HostedProgram.__qualname__}"
        self._env: AsyncEnv = InWorker(entry, {"program": program}, HostedProgram, variables=variables)
        self._start = start

    async def begin(self) -> Move:
        start = msgspec.to_builtins(self._start)
        action, info = await self._env.reset(task=Task("program", params={"start": start}))
        return _move(action, info)

    async def proceed(self, observation: Content) -> Move:
        step = await self._env.step(_passed(observation, done=False))
        return _move(step.observation, step.info)

    async def finish(self, observation: Content, grace: float) -> None:
        try:
            with contextlib.suppress(EpisodeError, TimeoutError, ValueError):
                async with asyncio.timeout(grace):
                    await self._env.step(_passed(observation, done=True))
        finally:
            with contextlib.suppress(EpisodeError):
                await self._env.close()


def _passed(observation: Content, *, done: bool) -> str:
    return json.dumps({"observation": text_of(observation), "done": done})


def _move(action: Content, info: dict[str, Any]) -> Move:
    return Move(text_of(action) if info["action"] else None, info["ended"])
