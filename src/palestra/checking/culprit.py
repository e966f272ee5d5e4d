"""Finds the line of the author's code that draws from a global generator.

The episode is played again with a trace function, which Python calls before every line. If the state of the generators has
changed, the previous line drew from them. This is slow, so it is done only for an environment that is known to draw.
"""

import contextlib
import linecache
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from palestra import adapters
from palestra.adapters import workers
from palestra.adapters.loop_thread import LoopThread
from palestra.checking.episodes import generator_states

__all__ = ["Watch", "watch_draws"]

_NOT_THE_AUTHORS = (
    str(Path(__file__).parent),
    str(Path(adapters.__file__).parent),
    str(Path(workers.__file__).parent),
    str(Path(np.__file__).parent),
    contextlib.__file__,
    random.__file__,
)


@contextmanager
def watch_draws() -> "Iterator[Watch]":
    """Trace the block. Afterwards ``Watch.found`` has file, line and source of the first draw, or is empty."""
    watch = Watch()
    thread = LoopThread.hold()  # async environments run on this thread
    before = sys.gettrace()
    thread.loop.call_soon_threadsafe(sys.settrace, watch)
    sys.settrace(watch)
    try:
        yield watch
    finally:
        sys.settrace(before)
        thread.loop.call_soon_threadsafe(sys.settrace, None)
        thread.release()


class Watch:
    """The trace function, and the state that it saw last."""

    def __init__(self) -> None:
        self.found = ""
        self._state: dict[str, object] | None = None
        self._line = ("", 0)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> "Watch | None":
        if self.found or frame.f_code.co_filename.startswith(_NOT_THE_AUTHORS):
            return None
        state = generator_states()
        if self._state is not None and state != self._state:
            file, number = self._line
            self.found = f"{Path(file).name}, line {number}: {linecache.getline(file, number).strip()}"
            return None
        self._state, self._line = state, (frame.f_code.co_filename, frame.f_lineno)
        return self
