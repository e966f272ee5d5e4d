"""Ways of one key or token to make a server hold memory or its event loop, against a real server in a process of its own.

The child process serves, and answers what it holds: resident memory, the longest step of its event loop in CPU seconds of the
loop's thread (what other processes do on the machine does not count), and how long other episodes waited meanwhile.
"""

import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

MEGABYTE = 2**20
_TICK = 0.005


class Held(NamedTuple):
    """What the child has held since it was last asked."""

    megabytes: float
    """Most resident memory."""
    hold: float
    """CPU seconds of the longest step of the event loop."""
    p99: float
    """Seconds that the slowest hundredth of the other episodes' calls took."""
    counted: int
    """Bytes that the server counts now."""


def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


class Watch:
    """Measures the running event loop. ``honest`` makes one call of another episode."""

    def __init__(self, honest: Callable[[], Awaitable[object]], counted: Callable[[], int]) -> None:
        self._honest = honest
        self._counted = counted
        self._begin()

    def _begin(self) -> None:
        self._most, self._longest, self._seconds = megabytes(), 0.0, list[float]()

    def read(self) -> Held:
        waits = sorted(self._seconds) or [0.0]
        held = Held(self._most, self._longest, waits[int(0.99 * (len(waits) - 1))], self._counted())
        self._begin()
        return held

    async def tick(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(_TICK)
            self._longest = max(self._longest, time.thread_time() - began)
            self._most = max(self._most, megabytes())

    async def call(self) -> None:
        while True:
            began = time.perf_counter()
            await self._honest()
            self._seconds.append(time.perf_counter() - began)
            await asyncio.sleep(2 * _TICK)


async def obey(pipe: Any, watch: Watch, commands: Mapping[str, Callable[[Any], Awaitable[Any]]]) -> None:
    """Answer the commands that come through ``pipe``, until ``end``."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.tick()), group.create_task(watch.call())]
        while True:
            command, value = await loop.run_in_executor(None, pipe.recv)
            if command == "end":
                break
            pipe.send(watch.read() if command == "held" else await commands[command](value))
        for task in tasks:
            task.cancel()
    pipe.send(None)


class Child:
    """The serving process."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def ask(self, command: str, value: Any = None) -> Any:
        self._pipe.send((command, value))
        assert self._pipe.poll(120), f"the server does not answer {command}"
        return self._pipe.recv()

    @property
    def held(self) -> Held:
        held: Held = self.ask("held")
        return held


@contextlib.contextmanager
def child(serve: Callable[[Any], None]) -> Iterator[Child]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    running = Child(mine)
    try:
        yield running
        running.ask("end")
        process.join(30)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            process.kill()
        process.join()


@contextlib.asynccontextmanager
async def raw(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A plain connection to the server at ``url``."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def pour(writer: asyncio.StreamWriter, data: bytes, seconds: float = 2.0) -> None:
    """Write ``data`` as far as the server reads it."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            for start in range(0, len(data), MEGABYTE):
                writer.write(data[start : start + MEGABYTE])
                await writer.drain()
