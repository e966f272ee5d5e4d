"""The background event loop of this process, for synchronous callers of coroutines."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar

from palestra.adapters.ownership import guarded_loop, let_go
from palestra.foundation.resources.sharing import Shared

__all__ = ["LoopThread", "run_anywhere"]

GRACE = 1.0
"""Seconds that tasks have to end after the work of their loop has ended."""

_T = TypeVar("_T")


class LoopThread:
    """The background event loop of this process. It runs as long as it has users."""

    shared: ClassVar["Shared[LoopThread]"]

    def __init__(self) -> None:
        self._process = os.getpid()
        self._runner = asyncio.Runner(loop_factory=guarded_loop)
        self.loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._serve, name="palestra-loop", daemon=True)
        self._thread.start()

    @classmethod
    def hold(cls) -> "LoopThread":
        """Return the running loop; the first call starts it. Call ``release`` once for every ``hold``."""
        return cls.shared.hold()

    @property
    def elsewhere(self) -> bool:
        """Whether this is a forked child: the loop runs in the parent process, and nothing runs on it here."""
        return os.getpid() != self._process

    def release(self) -> None:
        """Stop using the loop. The last user stops it."""
        if self.elsewhere or self.shared.release() is None:
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` on the loop and wait for its result. A ``KeyboardInterrupt`` in this thread cancels ``work``.

        Raises:
            RuntimeError: This process was forked after the loop had started, and has no loop.
        """
        if self.elsewhere:
            work.close()
            raise RuntimeError(
                f"the event loop of process {self._process} does not run in process {os.getpid()}, which was forked from it. "
                f"Make a new environment in this process."
            )
        future = asyncio.run_coroutine_threadsafe(_outcome(work), self.loop)
        try:
            outcome = future.result()
        except BaseException:
            future.cancel()
            raise
        return outcome()

    async def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` on the loop and wait for its result in another event loop. Cancelling the wait cancels ``work``."""
        outcome = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_outcome(work), self.loop))
        return outcome()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_end_others())
            self._runner.close()


def _no_loop_yet() -> None:
    """Let the next user start a loop. A forked child has no thread of its parent, and a lock of its parent is never free."""
    LoopThread.shared = Shared(LoopThread)


_no_loop_yet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_no_loop_yet)


def run_anywhere(work: Coroutine[Any, Any, _T]) -> _T:
    """Run ``work`` in this thread; if the thread already runs an event loop (a notebook), on the background loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=guarded_loop) as runner:
            return runner.run(_alone(work))
    thread = LoopThread.hold()
    try:
        return thread.run(work)
    finally:
        thread.release()


async def _alone(work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of ``work``, and end the tasks that it has left."""
    try:
        return await work
    finally:
        await _end_others()


async def _end_others() -> None:
    """Cancel all other tasks of the loop, and let it close even if one of them refuses."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, refusing = await asyncio.wait(left, timeout=GRACE)
        for task in refusing:
            let_go(task)


async def _outcome(work: Coroutine[Any, Any, _T]) -> Callable[[], _T]:
    """Return a function that returns the result of ``work`` or raises its exit, which would end the loop if raised there."""
    try:
        result = await work
    except (SystemExit, KeyboardInterrupt) as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error
