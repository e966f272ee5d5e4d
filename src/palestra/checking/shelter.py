"""How the code under test is called, so that the check ends whatever this code does.

A coroutine runs on the background event loop, in a task that can abandon it (``rollout.driving``): after ``seconds`` it is a
failure, and the environment is not called again. A plain method runs in place, where nothing can end it: a watchdog names its
line and lets Ctrl-C end it.

An author's code may raise any ``BaseException``. Whoever catches one calls ``keep_interrupt`` first: only a signal makes a
``KeyboardInterrupt`` the user's.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from palestra.adapters import Blocking, Guarded
from palestra.adapters.interrupts import interrupts
from palestra.adapters.loop_thread import LoopThread
from palestra.adapters.ownership import Owner
from palestra.adapters.passing import Passing
from palestra.core import AsyncEnv, Env, Step
from palestra.rollouts.driving import Overrun, tried
from palestra.rollouts.watchdog import HELD, HeldCall, watched_calls
from palestra.trajectory import Content, Task

__all__ = ["Shelter", "keep_interrupt"]

_T = TypeVar("_T")


def keep_interrupt() -> None:
    """Raise ``KeyboardInterrupt`` if the user has pressed Ctrl-C, also if the author's code has caught it."""
    if interrupts.pressed:
        raise KeyboardInterrupt


class Shelter:
    """Calls the environments of one check. A call may take ``seconds``."""

    def __init__(self, id: str, seconds: float, *, blocking: bool = False) -> None:
        self.seconds = seconds
        self.abandoned = ""
        """The call that was abandoned, if there was one. The state of the environment is then unknown."""
        self._id = id
        self._patience = seconds if blocking else HELD
        self._running: HeldCall | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Name the line of a plain method that does not return during the block, and let Ctrl-C end it."""
        with interrupts.noted(), watched_calls(lambda: self._running):
            yield

    def around(self, env: Guarded) -> Guarded:
        """Return ``env``, called through this shelter."""
        inside = env.env
        env.env = _AsyncCalls(self, inside.env) if isinstance(inside, Blocking) else _PlainCalls(self, inside)
        return env

    def run(self, verb: str, work: Coroutine[Any, Any, _T], owner: Owner | None = None) -> _T:
        """Run ``work`` on the background event loop for at most ``seconds``."""
        if self.abandoned:
            work.close()
            raise TimeoutError(self.abandoned)
        value, error = self.run_guarded(tried(work, self.seconds, owner))
        if type(error) is Overrun:
            self.abandoned = f"{verb}() did not return within {self.seconds:g} s, and was abandoned"
            raise TimeoutError(self.abandoned)
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    @staticmethod
    def run_guarded(work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work``, which is ours and guards what it awaits, on the background event loop."""
        thread = LoopThread.hold()
        try:
            return thread.run(work)
        finally:
            thread.release()
            keep_interrupt()

    def call(self, verb: str, function: Callable[..., _T], *arguments: Any, **keywords: Any) -> _T:
        """Call ``function`` in place."""
        who = f"{verb}() of the environment {self._id}"
        outer, self._running = self._running, HeldCall(who, monotonic(), self._patience)
        try:
            return function(*arguments, **keywords)
        finally:
            self._running = outer
            keep_interrupt()


class _PlainCalls(Passing):
    def __init__(self, shelter: Shelter, env: Env) -> None:
        super().__init__(env)
        self._shelter = shelter

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return self._shelter.call("reset", self.env.reset, seed=seed, task=task)

    def step(self, action: str) -> Step:
        return self._shelter.call("step", self.env.step, action)

    def close(self) -> None:
        self._shelter.call("close", self.env.close)

    def oracle(self) -> str:
        return self._shelter.call("oracle", self.env.oracle)

    def sample_random_action(self) -> str:
        return self._shelter.call("sample_random_action", self.env.sample_random_action)

    def seed_actions(self, seed: int) -> None:
        self._shelter.call("seed_actions", self.env.seed_actions, seed)

    def fork(self) -> Env:
        return _PlainCalls(self._shelter, self._shelter.call("fork", self.env.fork))


class _AsyncCalls(Blocking):
    def __init__(self, shelter: Shelter, env: AsyncEnv, owner: Owner | None = None) -> None:
        super().__init__(env)
        self._shelter = shelter
        self._owner = owner or Owner(None)

    def fork(self) -> Env:
        return _AsyncCalls(self._shelter, self._run(self.env.fork()), self._owner)

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            return super()._run(work)
        return self._shelter.run(getattr(work, "__name__", "a verb"), work, self._owner)
