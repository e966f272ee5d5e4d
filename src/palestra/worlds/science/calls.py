"""A thread that runs calls one after the other, and for which Python does not wait when it ends.

Python joins the threads of an executor before it runs the functions of ``atexit``. A call that computes a gold path, or that
never returns, would hold up the end, and nothing would end the Java process that it waits for.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

__all__ = ["CallThread"]

R = TypeVar("R")


class CallThread:
    """One daemon thread, which starts with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = Lock()
        self._started = False
        self._closed = False

    def submit(self, job: Callable[..., R], *args: Any) -> "Future[R]":
        """Run ``job(…)`` after the calls that are waiting.

        Raises:
            RuntimeError: The thread is closed.
        """
        future: Future[R] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(job(*args))
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, who waits
                future.set_exception(error)

        with self._lock:
            if self._closed:
                raise RuntimeError("the thread is closed")
            if not self._started:
                Thread(target=self._work, name=self._name, daemon=True).start()
                self._started = True
            self._calls.put(run)
        return future

    def close(self) -> None:
        """Accept no more calls. Those that are waiting still run, and then the thread ends. Does not wait for it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # it holds the caller's arguments
