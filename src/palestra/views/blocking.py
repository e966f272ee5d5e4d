"""An async environment for callers who block: its coroutines run on one background event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar

from palestra.core import AsyncEnv, Env, Step
from palestra.trajectory import Content, Task

__all__ = ["Blocking", "LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """The background event loop of this process. It runs while somebody holds it, and not longer."""

    # Reentrant: the garbage collector may run Blocking.__del__, which releases, while this very thread is in hold().
    _lock: ClassVar[threading.RLock] = threading.RLock()
    _current: ClassVar["LoopThread | None"] = None

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self.loop = self._runner.get_loop()
        self._holders = 0
        self._thread = threading.Thread(target=self._serve, name="palestra-loop", daemon=True)
        self._thread.start()

    @classmethod
    def hold(cls) -> "LoopThread":
        """The running loop, started if need be. Pair with ``release``."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            cls._current._holders += 1
            return cls._current

    def release(self) -> None:
        """Give the loop back; the last one to do so stops it."""
        with self._lock:
            self._holders -= 1
            if self._holders:
                return
            LoopThread._current = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` on the loop and wait for it here. A ``KeyboardInterrupt`` here cancels it there."""
        future = asyncio.run_coroutine_threadsafe(_outcome(work), self.loop)
        try:
            outcome = future.result()
        except BaseException:
            future.cancel()
            raise
        return outcome()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._runner.close()  # cancels what still runs, and waits for it


async def _outcome(work: Coroutine[Any, Any, _T]) -> Callable[[], _T]:
    """What ``work`` came to, as a call that returns or raises it. An exit raised on the loop itself would end the loop."""
    try:
        result = await work
    except (SystemExit, KeyboardInterrupt) as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error


class Blocking(Env):
    """An ``AsyncEnv`` seen as a plain ``Env``."""

    def __init__(self, env: AsyncEnv) -> None:
        self.env = env
        self._thread: LoopThread | None = LoopThread.hold()

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return self._run(self.env.reset(seed=seed, task=task))

    def step(self, action: str) -> Step:
        return self._run(self.env.step(action))

    def close(self) -> None:
        if self._thread is None:
            return
        try:
            self._run(self.env.close())
        finally:
            thread, self._thread = self._thread, None
            thread.release()

    def oracle(self) -> str:
        return self._run(self.env.oracle())

    def sample_random_action(self) -> str:
        return self._run(self.env.sample_random_action())

    def seed_actions(self, seed: int) -> None:
        self._run(self.env.seed_actions(seed))

    def fork(self) -> Env:
        return Blocking(self._run(self.env.fork()))

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            work.close()
            raise RuntimeError("this environment has been closed")
        return self._thread.run(work)

    def __getattr__(self, name: str) -> Any:
        if name in ("env", "_thread"):  # half built
            raise AttributeError(name)
        return getattr(self.env, name)

    def __del__(self) -> None:
        # A user who forgets close() must not keep the background thread alive.
        thread = self.__dict__.get("_thread")
        if thread is not None:
            thread.release()
