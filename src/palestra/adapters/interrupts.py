"""Ctrl-C while the code of strangers runs.

An environment may raise ``KeyboardInterrupt`` itself, or catch one that Ctrl-C raised. So a rollout does not go by the
exception: it hears of the signal. In the main thread, ``heard`` puts a handler of its own before the one that is there. When
that one raises ``KeyboardInterrupt``, each listener is called in its event loop. What asyncio's handler does on the first
Ctrl-C, which is to cancel the main task, stays as it is.
"""

import asyncio
import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from types import FrameType
from typing import Any

__all__ = ["interrupts"]

Listener = Callable[[KeyboardInterrupt], None]

# A vector installs and removes the handler at every step. The functions of the module ``signal`` make enums of all that they
# take and return, which takes ten times as long as the functions of C that they call.
_c_signal = import_module("_signal")
_SIGINT = int(signal.SIGINT)


class _Interrupts:
    """The interrupts of this process."""

    def __init__(self) -> None:
        self.forced = False
        """Whether the next signal raises ``KeyboardInterrupt`` in any case: what it interrupts holds the event loop."""
        self.delivering = False
        """Whether the handler of the signal runs. What it cancels is cancelled from outside, whatever code it interrupted."""
        self._signals: deque[float] = deque(maxlen=100)
        """``monotonic()`` of the latest signals."""
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Listener]] = []
        self._users = 0
        """Blocks that hear of interrupts now."""
        self._noted_since = math.inf
        self._usual: Any = None

    def first_since(self, moment: float) -> float | None:
        """``monotonic()`` of the first signal after ``moment``, if there was one."""
        return next((signaled for signaled in list(self._signals) if signaled > moment), None)

    @contextmanager
    def heard(self, listener: Listener) -> Iterator[None]:
        """Call ``listener`` in the running event loop after each interrupt during the block."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread handles signals, and it cancels what runs in others
            return
        entry = (asyncio.get_running_loop(), listener)
        with self._handled():
            self._listeners.append(entry)
            try:
                yield
            finally:
                self._listeners.remove(entry)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the signals during the block for ``pressed``: for callers of strangers' code that have no event loop."""
        if threading.current_thread() is not threading.main_thread() or self._noted_since < math.inf:
            yield
            return
        with self._handled():
            self._noted_since = monotonic()
            try:
                yield
            finally:
                self._noted_since = math.inf

    @property
    def pressed(self) -> bool:
        """Whether there was a signal during the block of ``noted`` that runs. Then a ``KeyboardInterrupt`` is the user's."""
        return self.first_since(self._noted_since) is not None

    @contextmanager
    def _handled(self) -> Iterator[None]:
        self._users += 1
        if self._users == 1:
            self._install()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._remove()

    def _install(self) -> None:
        self._usual = _c_signal.getsignal(_SIGINT)
        if callable(self._usual):  # else Ctrl-C is ignored, or ends the process at once
            _c_signal.signal(_SIGINT, self._handle)

    def _remove(self) -> None:
        if callable(self._usual) and _c_signal.getsignal(_SIGINT) == self._handle:
            _c_signal.signal(_SIGINT, self._usual)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(monotonic())
        self.delivering = True
        try:
            self._usual(number, frame)
            if self.forced:
                raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            for loop, listener in self._listeners:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(listener, error)
            raise
        finally:
            self.delivering = self.forced = False


interrupts = _Interrupts()
