"""Play a program move by move, whether it runs on this event loop or in a worker process."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from palestra.adapters.workers import InWorker
from palestra.agents.hosted import HostedProgram, ProgramContext, Start
from palestra.agents.rendezvous import Rendezvous
from palestra.core import AsyncEnv
from palestra.errors import EpisodeError
from palestra.trajectory import Content, Task, text_of

__all__ = ["InProcess", "InWorkerProcess", "Move", "Performance"]


_STOPPING = 1.0
"""Seconds to wait for a program that was cancelled."""


class Move(NamedTuple):
    """The next step of a program, or its end."""

    action: str | None
    """The action; ``None`` if the program ended without one."""
    ended: bool


class Performance(Protocol):
    """A running program."""

    actions: Rendezvous
    """Takes the actions that the program does not pass on by itself, such as MCP calls."""

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
        self.actions = Rendezvous(self._see)
        self._context: ProgramContext[Awaitable[str]] = ProgramContext(start, self._take)
        self._task: asyncio.Task[Any] | None = None

    async def begin(self) -> Move:
        action = self.actions.expect()
        self._task = asyncio.ensure_future(self._started())
        return await self._move(self._task, action)

    async def proceed(self, observation: Content) -> Move:
        assert self._task is not None
        action = self.actions.expect()
        self.actions.pass_on(text_of(observation))
        return await self._move(self._task, action)

    async def finish(self, observation: Content, grace: float) -> None:
        self.actions.pass_on(text_of(observation), ended=True)
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

    async def _move(self, task: "asyncio.Task[Any]", action: "asyncio.Future[str]") -> Move:
        await asyncio.wait([task, action], return_when=asyncio.FIRST_COMPLETED)
        if action.done():
            self.actions.begin_step()
            return Move(action.result(), False)
        result = task.result()
        return Move(None if result is None else str(result), True)

    async def _take(self, action: str) -> str:
        return (await self.actions.take(str(action))).observation

    def _see(self, observation: str, ended: bool) -> None:
        self._context.observation, self._context.ended = observation, ended


class InWorkerProcess(InProcess):
    """A plain program in a worker process. A program that does not end is killed with its worker.

    A task of this event loop represents the program: it takes the program's steps and passes the observations to the worker.
    So the program's own steps and its steps by MCP wait for the same turn, and each gets its own observation.
    """

    def __init__(self, program: str, start: Start, variables: tuple[str, ...] = ()) -> None:
        super().__init__(self._play, start)
        entry = f"{HostedProgram.__module__}:{HostedProgram.__qualname__}"
        self._env: AsyncEnv = InWorker(entry, {"program": program}, HostedProgram, variables=variables)
        self._start = start

    async def finish(self, observation: Content, grace: float) -> None:
        try:
            await super().finish(observation, grace)
        finally:
            with contextlib.suppress(EpisodeError):
                await self._env.close()

    async def _play(self, _: ProgramContext[Any]) -> str | None:
        """Return the text that the program returns. If it takes a step after the end, it gets the last observation."""
        start = msgspec.to_builtins(self._start)
        action, info = await self._env.reset(task=Task("program", params={"start": start}))
        while not info["ended"]:
            answer = await self.actions.take(text_of(action))
            passed = {"observation": answer.observation, "ended": self.actions.ended}
            step = await self._env.step(json.dumps(passed))
            action, info = step.observation, step.info
        return text_of(action) if info["action"] else None
