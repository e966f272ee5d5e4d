"""The Java processes of this Python process. They start when episodes need them and end when this process ends."""

import asyncio
import atexit
import os
import threading

from palestra.worlds.science.jvm import Jvm, Seat

__all__ = ["MOST", "SEATS", "Pool", "seat", "shared_pool"]

MOST = 2
"""Java processes per Python process."""

FEW = 4
"""Episodes that a process takes before another one starts."""


SEATS = 32
"""Episodes that a process hosts at once. Its heap has room for a few more; further resets wait until an episode ends."""

_PAUSE = 0.05
"""Seconds between two looks for a free place."""


class Pool:
    """Up to ``most`` Java processes. A process that ended is replaced when the next episode starts."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._jvms: list[Jvm] = []
        self._lock = threading.Lock()

    @property
    def jvms(self) -> tuple[Jvm, ...]:
        """The processes that have not ended."""
        return tuple(jvm for jvm in self._jvms if jvm.alive)

    def seat(self) -> Seat | None:
        """Return a place in the process with the fewest episodes, or ``None``. Its first call starts the process."""
        with self._lock:
            for jvm in self._jvms:
                if not jvm.alive:
                    jvm.end()
            self._jvms = [jvm for jvm in self._jvms if jvm.alive]
            least = min(self._jvms, key=lambda jvm: jvm.seats, default=None)
            if least is None or (least.seats >= FEW and len(self._jvms) < self._most):
                least = Jvm()
                self._jvms.append(least)
            return Seat(least) if least.seats < SEATS else None

    def end(self) -> None:
        """End all processes."""
        with self._lock:
            jvms, self._jvms = self._jvms, []
        for jvm in jvms:
            jvm.end()

    def forget(self) -> None:
        """Start anew in a forked child, which has neither the threads of its parent nor a right to its processes."""
        self._lock = threading.Lock()
        jvms, self._jvms = self._jvms, []
        for jvm in jvms:
            jvm.forget()


_pool = Pool()
atexit.register(_pool.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


async def seat() -> Seat:
    """Return a place for one episode in a Java process of this Python process. Waits while all are taken."""
    while (free := _pool.seat()) is None:  # noqa: ASYNC110 - a place is freed by any thread or event loop
        await asyncio.sleep(_PAUSE)
    return free


def shared_pool() -> Pool:
    """Return the pool of this Python process."""
    return _pool
