"""Play a program move by move, whether it runs on this event loop or in a worker process."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from palestra.agents.hosted import HostedProgram, ProgramContext, Start
from palestra.agents.rendezvous import Rendezvous
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
        self.actions.pass_on(text_of(observation), done=True)
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

    @staticmethod
    async def _move(task: "asyncio.Task[Any]", action: "asyncio.Future[str]") -> Move:
        await asyncio.wait([task, action], return_when=asyncio.FIRST_COMPLETED)
        if action.done():
            return Move(action.result(), False)
        result = task.result()
        return Move(None if result is None else str(result), True)

    async def _take(self, action: str) -> str:
        return await self.actions.take(str(action))

    def _see(self, observation: str, done: bool) -> None:
        self._context.observation, self._context.done = observation, done


class InWorkerProcess:
    """A plain program in a worker process. A program that does not end is killed with its worker.

    The program's own steps are answers of the worker. Its steps by MCP arrive here while the worker is busy with the program,
    so a call to the worker stays under way until the program takes a step by itself or ends.
    """

    def __init__(self, program: str, start: Start, variables: tuple[str, ...] = ()) -> None:
        entry = f"{HostedProgram.__module__}:{HostedProgram.__qualname__}"
        self._env: AsyncEnv = InWorker(entry, {"program": program}, HostedProgram, variables=variables)
        self._start = start
        self.actions = Rendezvous()
        self._answer: asyncio.Task[Move] | None = None
        """The worker's next answer, while it is under way."""
        self._ended = False

    async def begin(self) -> Move:
        action = self.actions.expect()
        self._answer = asyncio.ensure_future(self._begun())
        return await self._move(action)

    async def proceed(self, observation: Content) -> Move:
        action = self.actions.expect()
        if self.actions.waiting:
            self.actions.pass_on(text_of(observation))
        else:
            self._answer = asyncio.ensure_future(self._passed(observation, done=False))
        return await self._move(action)

    async def finish(self, observation: Content, grace: float) -> None:
        self.actions.pass_on(text_of(observation), done=True)
        try:
            with contextlib.suppress(EpisodeError, TimeoutError, ValueError):
                async with asyncio.timeout(grace):
                    await self._last_words(observation)
        finally:
            await self._stop()

    async def _last_words(self, observation: Content) -> None:
        """Let the program return. If it takes another step, its answer is the last observation."""
        while not self._ended:
            if self._answer is None:
                self._answer = asyncio.ensure_future(self._passed(observation, done=True))
            await asyncio.wait([self._answer])
            self._taken()

    async def _stop(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
            await asyncio.wait([self._answer])
            if not self._answer.cancelled():
                self._answer.exception()
        with contextlib.suppress(EpisodeError):
            await self._env.close()

    async def _move(self, action: "asyncio.Future[str]") -> Move:
        waiting: list[asyncio.Future[Any]] = [action] if self._answer is None else [self._answer, action]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return Move(action.result(), False) if action.done() else self._taken()

    def _taken(self) -> Move:
        """The move of the worker's answer, which is there."""
        assert self._answer is not None
        answer, self._answer = self._answer, None
        self._ended = True  # also if the program failed
        move = answer.result()
        self._ended = move.ended
        return move

    async def _begun(self) -> Move:
        start = msgspec.to_builtins(self._start)
        action, info = await self._env.reset(task=Task("program", params={"start": start}))
        return _move(action, info)

    async def _passed(self, observation: Content, *, done: bool) -> Move:
        step = await self._env.step(json.dumps({"observation": text_of(observation), "done": done}))
        return _move(step.observation, step.info)


def _move(action: Content, info: dict[str, Any]) -> Move:
    return Move(text_of(action) if info["action"] else None, info["ended"])
