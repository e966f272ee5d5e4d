"""Episodes that a loop begins and never ends: they leave no environment, file, box, process or thread behind.

``Held`` counts how many of it are open, and holds what real environments hold. ``all_closed`` fails if the loop began too few
episodes, or if something of them is left. ``Silent`` is a model that never answers, and ``cut_off`` cancels the loop that waits
for it. Nothing here imports another framework, nor torch.
"""

import asyncio
import gc
import itertools
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.util import find_spec
from typing import Any, ClassVar

from palestra import Step, Task
from palestra.core import AsyncEnv
from palestra.sandbox.shared import shared_sandbox
from tests.leftovers import nothing_left

EPISODES = 1000
HELD = f"{__name__}:Held"
FILES, PROCESSES, BOXES = 10, 50, 100
"""Every tenth environment holds an open file, every fiftieth a process, and every hundredth an interpreter in a box."""
BOXED = shutil.which("bwrap") is not None and find_spec("pyseccomp") is not None
"""Whether a box can be started here. ``scripts/bridge.sh`` installs what it needs."""
_names = itertools.count()


class Held(AsyncEnv):
    """Counts how many are open, and holds what a real environment may hold."""

    made: ClassVar[int] = 0
    open: ClassVar[set[int]] = set()
    boxes: ClassVar[int] = 0
    processes: ClassVar[list["subprocess.Popen[bytes]"]] = []

    def __init__(self) -> None:
        Held.made += 1
        self._number = Held.made
        self._name = next(_names)  # not id(self), which another one has after the collection of this one
        Held.open.add(self._name)
        self._things = AsyncExitStack()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        if self._number % FILES == 0:
            self._things.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        if self._number % PROCESSES == 0:
            self._things.enter_context(_process())
        if self._number % BOXES == 0 and BOXED:
            sandbox = await self._things.enter_async_context(shared_sandbox())
            self._things.push_async_exit(await sandbox.open_session())
            Held.boxes += 1
        return "go", {}

    async def step(self, action: str) -> Step:
        return Step("on", 1.0, False, False, {})

    async def close(self) -> None:
        Held.open.discard(self._name)
        await self._things.aclose()


@contextmanager
def _process() -> Iterator[None]:
    process = subprocess.Popen(["sleep", "3600"])
    Held.processes.append(process)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def all_closed(episodes: int = EPISODES) -> Iterator[None]:
    """Fails unless the block begins ``episodes`` episodes of ``Held``, and everything that they held is gone after it."""
    Held.made = Held.boxes = 0
    Held.open.clear()
    Held.processes.clear()
    others = set(threading.enumerate())  # an earlier test of this process may still hold the thread of a loop
    try:
        with nothing_left():
            yield
            assert not (left := _left(others)), left
        assert Held.made >= episodes, f"the loop began {Held.made} of {episodes} episodes"
        assert len(Held.processes) >= episodes // PROCESSES
        assert Held.boxes >= (episodes // BOXES if BOXED else 0)
    finally:
        for process in Held.processes:
            process.kill()  # does nothing if it has been waited for
            process.wait()


def _left(others: set[threading.Thread]) -> str:
    """What is left after a while beside the threads ``others``, or an empty text."""
    until = time.monotonic() + 60.0
    while True:
        gc.collect()
        threads = [thread.name for thread in set(threading.enumerate()) - others if thread.name.startswith("palestra-")]
        processes = [process.pid for process in Held.processes if process.poll() is None]
        if not Held.open and not threads and not processes:
            return ""
        if time.monotonic() > until:
            return f"{len(Held.open)} of {Held.made} environments are open; processes: {processes}, threads: {threads}"
        time.sleep(0.05)


class Silent:
    """A model that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        await asyncio.Event().wait()


async def cut_off(loop: Awaitable[Any], silent: Silent, episodes: int = EPISODES) -> None:
    """Cancel ``loop`` as soon as all of its episodes wait for the model.

    The program does not wait for their cleaning up: ``asyncio.run`` cancels it once more, as at the end of any program.
    """
    running = asyncio.ensure_future(loop)
    async with asyncio.timeout(300):  # against hangs
        while silent.asked < episodes and not running.done():
            await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
