"""An async environment for synchronous callers: its coroutines run on a background event loop."""

import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from palestra.core import AsyncEnv, Env, Step
from palestra.trajectory import Content, Task

__all__ = ["Blocking"]

_T = TypeVar("_T")


class Blocking(Env):
    """An ``AsyncEnv`` as a plain ``Env``."""

    def __init__(self, env: AsyncEnv) -> None:
        from palestra.adapters.loop_thread import LoopThread  # asyncio takes a fifth of the time of "import palestra"

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
            if not self._thread.elsewhere:  # what the environment holds belongs to the parent of a forked child
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
            raise RuntimeError("this environment has been closed. Make a new one.")
        return self._thread.run(work)

    def __getattr__(self, name: str) -> Any:
        if name in ("env", "_thread"):  # half built
            raise AttributeError(name)
        return getattr(self.env, name)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # A user who forgets close() must not keep the background thread alive. An interpreter that shuts down has ended this
        # thread already, and has emptied modules such as ``sys``: so the function is held here.
        thread = self.__dict__.get("_thread")
        if thread is not None and not is_finalizing():
            thread.release()
