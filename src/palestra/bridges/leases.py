"""Environments lent to programs that never say when an episode is over.

Some trainers drop an episode at their own turn limit and never call ``close``. A ``LentEnv`` closes its environment at the
first of three events: a call of ``close``, the collection of the ``LentEnv`` by the garbage collector, and, if ``idle`` is
given, that many seconds without a call. The environment lives on the background event loop of Palestra, not on the trainer's,
so that it can be closed after the trainer's loop has ended. Each method exists twice: for plain callers, and with ``_async``
for coroutines.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from palestra.adapters.loop_thread import LoopThread
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.registry import make_async
from palestra.trajectory import Content, Message, Task, observed, opening_of, text_of

__all__ = ["LentEnv", "first_messages", "only_text", "when_dropped"]

_T = TypeVar("_T")

_closing: set[asyncio.Task[None]] = set()
"""Keeps environments that are being closed from the garbage collector."""


def when_dropped(owner: object, close: Callable[[], object]) -> "weakref.finalize[[], Any]":
    """Call ``close`` when the garbage collector takes ``owner``, in whatever thread that is; ``close`` must not wait."""
    end = weakref.finalize(owner, close)
    end.atexit = False  # at the exit of Python, the background loop and the worker processes end by themselves
    return end


def first_messages(observation: Content, info: Mapping[str, Any]) -> list[Message]:
    """Return the messages that an episode begins with: those of ``info["opening"]`` and the first observation."""
    return [*opening_of(info), observed(observation, info)]


def only_text(observation: Content, info: Mapping[str, Any]) -> str:
    """Return the first observation as text, for a program that takes one text.

    Raises:
        UsageError: The episode begins with several messages, such as a system message.
    """
    if opening := opening_of(info):
        roles = ", ".join(message.role for message in opening)
        raise UsageError(f"this episode begins with further messages ({roles}), and this program takes one text")
    return text_of(observation)


class LentEnv:
    """One environment, lent to another program's loop.

    Args:
        id: The id of the environment, as for ``palestra.make``.
        idle: Seconds without a call after which the environment is closed; by default it waits for the garbage collector.
        kwargs: Keyword arguments of the environment.

    Raises:
        UsageError: From ``reset`` and ``step``, if the environment has been closed; from ``reset``, if it has several players.
    """

    def __init__(self, id: str, *, idle: float | None = None, **kwargs: Any) -> None:
        env = make_async(id, **kwargs)
        self._id = id
        self._thread = LoopThread.hold()
        self._lease = _Lease(self._thread, env, idle)
        self._end = when_dropped(self, self._lease.end_soon)

    @property
    def closed(self) -> bool:
        """Whether the environment has been closed, or is being closed."""
        return self._lease.ended

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Begin an episode, as ``Env.reset`` does."""
        return self._for_one(self._thread.run(self._lease.use(self._lease.env.reset(seed=seed, task=task))))

    def step(self, action: str) -> Step:
        """Take an action, as ``Env.step`` does."""
        return self._thread.run(self._lease.use(self._lease.env.step(action)))

    def close(self) -> None:
        """Close the environment. A second call does nothing."""
        if self._end.detach():
            try:
                self._thread.run(self._lease.end())
            finally:
                self._thread.release()

    async def reset_async(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Begin an episode, as ``AsyncEnv.reset`` does."""
        return self._for_one(await self._thread.wait(self._lease.use(self._lease.env.reset(seed=seed, task=task))))

    async def step_async(self, action: str) -> Step:
        """Take an action, as ``AsyncEnv.step`` does."""
        return await self._thread.wait(self._lease.use(self._lease.env.step(action)))

    async def close_async(self) -> None:
        """Close the environment. A second call does nothing."""
        if not self._end.detach():
            return
        try:
            await self._thread.wait(self._lease.end())
        except asyncio.CancelledError:
            self._lease.end_soon()  # the caller no longer waits; the environment is closed all the same
            raise
        except BaseException:
            self._thread.release()
            raise
        # Shielded: a call that still waits for a thread would be dropped if the caller is cancelled.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._thread.release))

    def _for_one(self, begun: tuple[Content, dict[str, Any]]) -> tuple[Content, dict[str, Any]]:
        if begun[1].get("player"):
            raise UsageError(f'"{self._id}" has several players, and this program plays one; use palestra.rollout')
        return begun


class _Lease:
    """The environment and its deadline. Everything except ``end_soon`` runs on the background loop."""

    def __init__(self, thread: LoopThread, env: AsyncEnv, idle: float | None) -> None:
        self.thread = thread
        self.env = env
        self.idle = idle
        self.ended = False
        self._calls = 0
        self._ending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        thread.loop.call_soon_threadsafe(self._wait)

    async def use(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self.ended:
            work.close()
            after = f" after {self.idle:g} s without a call" if self.idle else ""
            raise UsageError(f"this environment has been closed{after}; begin a new episode")
        self._calls += 1
        self._stop_timer()
        try:
            return await work
        finally:
            self._calls -= 1
            self._wait()

    async def end(self) -> None:
        self._stop_timer()
        self.ended = True
        if self._ending is None:
            self._ending = asyncio.ensure_future(self.env.close())
        await asyncio.shield(self._ending)  # a caller that is cancelled does not stop the closing

    def end_soon(self) -> None:
        """Close the environment without waiting for it. The garbage collector calls this, in any thread."""
        self.thread.loop.call_soon_threadsafe(self._start, True)

    def _wait(self) -> None:
        """Start to count the idle time, unless a call is under way."""
        if self.idle is not None and not self.ended and not self._calls:
            self._stop_timer()
            self._timer = asyncio.get_running_loop().call_later(self.idle, self._expire)

    def _expire(self) -> None:
        self.ended = True  # at once: no call may begin before the closing does
        self._start(False)

    def _start(self, release: bool) -> None:
        task = asyncio.ensure_future(self._finish(release))
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _finish(self, release: bool) -> None:
        try:
            await self.end()
        finally:
            if release:
                self.thread.release()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
