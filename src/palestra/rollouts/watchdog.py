"""Names the code that holds the event loop, and lets Ctrl-C end it.

Code that neither returns nor awaits stops every episode, every deadline and Ctrl-C: nothing in the same thread can end it. A
thread of its own asks the loop for a sign of life every second. If there is none for ``HELD`` seconds and an episode runs, it
warns: which environment or policy, in which verb, at which line, and that ``blocking = True`` puts an environment into a
process that can be killed. Time in which the loop's thread could have run but got no processor does not count: on a busy
machine it would blame whatever runs at that moment.

After Ctrl-C, asyncio only cancels the main task, which waits for the loop as well. So while an episode holds the loop, this
thread sends the signal again, which raises ``KeyboardInterrupt`` in the code that holds it. Code that catches this again and
again leaves one end: the process. Every episode that has finished is on the disk by then.
"""

import asyncio
import os
import signal
import sys
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import NamedTuple

from palestra.adapters.interrupts import interrupts
from palestra.errors import EventLoopBlocked
from palestra.rollouts.driving import EpisodeTask, WatchedEpisode
from palestra.trajectory import Phase

__all__ = ["HELD", "HeldCall", "watched", "watched_calls"]

HELD = 5.0
"""Seconds without a sign of life after which the code that holds the loop is named."""

SECOND_SIGNAL = 2.0
"""Seconds after Ctrl-C at which code that still holds the loop is interrupted, and again every second."""

LAST_SIGNAL = 7.0
"""Seconds after Ctrl-C at which the process ends if the code has caught every interrupt."""

_BEAT = 1.0
_VERBS = {Phase.BOOT: "__init__", Phase.RESET: "reset", Phase.ACT: "act", Phase.STEP: "step", Phase.CLOSE: "close"}
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


class HeldCall(NamedTuple):
    """A call of a stranger's code that has not returned yet."""

    who: str
    """The verb and the environment."""
    began: float
    """``monotonic()`` at its beginning."""
    patience: float = HELD
    """Seconds after which its line is named."""


@contextmanager
def watched() -> Iterator[None]:
    """Watch the running event loop during the block."""
    loop, native = asyncio.get_running_loop(), threading.get_native_id()
    with _thread(lambda thread, ended: _watch(loop, thread, native, ended)):
        yield


@contextmanager
def watched_calls(running: Callable[[], HeldCall | None]) -> Iterator[None]:
    """Watch calls that this thread makes without an event loop during the block. ``running`` returns the present one."""
    with _thread(lambda thread, ended: _watch_calls(running, thread, ended)):
        yield


@contextmanager
def _thread(watch: Callable[[int, threading.Event], None]) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=watch, args=(threading.get_ident(), ended), name="palestra-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch_calls(running: Callable[[], HeldCall | None], thread: int, ended: threading.Event) -> None:
    named: HeldCall | None = None
    while not ended.wait(_BEAT):
        call = running()
        if call is None:
            continue
        held = monotonic() - call.began
        if call is not named and held >= call.patience:
            named = call
            sys.stderr.write(f"{call.who} has not returned for {held:.0f} s, at {_where(thread)}. Ctrl-C ends it.\n")
            sys.stderr.flush()
        signaled = interrupts.first_since(call.began)
        if signaled is not None and thread == threading.main_thread().ident:
            _interrupt(call.who, thread, monotonic() - signaled)


def _watch(loop: asyncio.AbstractEventLoop, thread: int, native: int, ended: threading.Event) -> None:
    alive = asked = answered = monotonic()
    starved = seconds_without_processor(native)
    named = False

    def answer() -> None:
        nonlocal answered
        answered = monotonic()

    while not ended.wait(_BEAT):
        if answered >= asked:
            alive, asked, named = answered, monotonic(), False
            starved = seconds_without_processor(native)
            try:
                loop.call_soon_threadsafe(answer)
            except RuntimeError:  # the loop has closed
                return
            continue
        task = asyncio.current_task(loop)
        episode = task.episode if isinstance(task, EpisodeTask) and task.call is not None else None
        if episode is None:
            continue
        held = monotonic() - asked - (seconds_without_processor(native) - starved)
        if not named and held >= HELD:
            named = True
            _name(episode, thread, held)
        signaled = interrupts.first_since(alive)
        if signaled is not None and thread == threading.main_thread().ident:
            _interrupt(_who(episode), thread, monotonic() - signaled)


def seconds_without_processor(native: int) -> float:
    """How long the thread ``native`` was ready to run but waited for a processor; 0 where the kernel does not count it."""
    try:
        return int(Path(f"/proc/self/task/{native}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _interrupt(who: str, thread: int, waited: float) -> None:
    if waited >= LAST_SIGNAL:
        sys.stderr.write(f"\n{who} catches every interrupt: the process ends. What has finished is on the disk.\n")
        sys.stderr.flush()
        os._exit(128 + signal.SIGINT)
    if waited >= SECOND_SIGNAL:
        interrupts.forced = True
        signal.pthread_kill(thread, signal.SIGINT)


def _name(episode: WatchedEpisode, thread: int, seconds: float) -> None:
    advice = (
        "Make the policy `async def` and await, or put the slow part into `await asyncio.to_thread(…)`"
        if episode.phase is Phase.ACT
        else "Set `blocking = True` on the class of a plain environment: it then runs in a process that can be killed. "
        "An AsyncEnv must await"
    )
    held = f"{_who(episode)} has held the event loop for {seconds:.0f} s, at {_where(thread)}"
    message = f"{held}, and every other episode waits. {advice}."
    try:
        warnings.warn(message, EventLoopBlocked, stacklevel=2)
    except EventLoopBlocked:  # an error by a filter, which nobody in this thread would see
        sys.stderr.write(f"{message}\n")


def _who(episode: WatchedEpisode) -> str:
    who = "a policy, playing" if episode.phase is Phase.ACT else "the environment"
    return f"{_VERBS[episode.phase]}() of {who} {episode.task.env}"


def _where(thread: int) -> str:
    """File and line of the innermost code that is not of the standard library."""
    frame = innermost = sys._current_frames().get(thread)
    while frame is not None and _is_standard(frame):
        frame = frame.f_back
    frame = frame or innermost
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_standard(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return path.startswith("<") or (path.startswith(_STANDARD_LIBRARY) and "site-packages" not in path)
