"""What a piece of work may leave behind: nothing."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fails if the block leaves a thread, an open file or a child process."""
    gc.collect()
    threads, files, children = set(threading.enumerate()), open_files(), child_processes()
    yield
    gc.collect()
    assert set(threading.enumerate()) <= threads
    assert child_processes() <= children
    assert not (left := open_files() - files), f"files left open: {sorted(left)}"


@asynccontextmanager
async def nothing_left_here() -> AsyncIterator[None]:
    """The same inside a running loop, where a task left behind counts too."""
    before = asyncio.all_tasks()
    with nothing_left():
        yield
        # A transport closes its socket in the loop's next round; a generator that was dropped is closed by a task of its own.
        for _ in range(50):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await _all_done(asyncio.all_tasks() - before)


async def _all_done(tasks: set[asyncio.Task[object]]) -> None:
    if tasks:
        await asyncio.wait(tasks)


def open_files() -> set[str]:
    """Each open file descriptor of this process with what it stands for."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{link.name} {os.readlink(link)}")
        except FileNotFoundError:  # the descriptor that lists this very folder
            continue
    return found


def child_processes() -> set[int]:
    """The children of every thread of this process."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            continue
    return found


def alive(pid: int) -> bool:
    """Whether a process exists that is not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
