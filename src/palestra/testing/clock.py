"""An event loop with a virtual clock: what sleeps wakes in order, without waiting, and every run of a program is the same.

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(main())

``asyncio.sleep`` and ``asyncio.timeout`` use the clock. Work for a thread runs on the loop, at once, and takes no virtual time,
so nothing depends on how fast the machine is. Subprocesses and sockets are still real; they are not for this loop.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

__all__ = ["VirtualClockLoop"]


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``time()`` starts at 0 and jumps to the next timer when nothing else is left to do."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self._advance))

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call ``func`` now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the error belongs to the caller, who waits
            done.set_exception(error)
        return done

    def _advance(self, seconds: float) -> None:
        self._now += seconds


class _Selector(selectors.DefaultSelector):
    """Passes the time instead of waiting for it."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        super().__init__()
        self._advance = advance

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._advance(max(timeout, 0.0))
        return ready
