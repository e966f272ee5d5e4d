"""Ways of one key or token to make a server hold memory or its event loop, against a real server in a process of its own.

The child process serves, and answers what it holds: resident memory, the longest step of its event loop, and how long calls of
other episodes waited meanwhile. What other processes do on the machine does not count: a step is measured in CPU seconds of the
loop's thread, and from a wait is taken what that thread spent ready to run without a CPU (Linux counts it). Waits are measured
alternately without and with the attack.
"""

import asyncio
import contextlib
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MEGABYTE = 2**20
_TICK = 0.005
_CALLS = 30
"""Calls of other episodes before an attack begins."""


class Held(NamedTuple):
    """What the child has held since it was last asked."""

    megabytes: float
    """Most resident memory."""
    hold: float
    """CPU seconds of the longest step of the event loop."""
    p99: float
    """Seconds that the slowest hundredth of the other episodes' calls took; with fewer calls, the slowest."""
    counted: int
    """Bytes that the server counts now."""


def without_a_cpu() -> float:
    """Seconds that this thread was ready to run and had no CPU."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


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

    async def read(self, calls: int) -> Held:
        """Return what was held since the last reading, once ``calls`` more calls of other episodes have ended."""
        wanted = len(self._seconds) + calls
        while len(self._seconds) < wanted:
            await asyncio.sleep(_TICK)
        waits = sorted(self._seconds)
        held = Held(self._most, self._longest, waits[math.ceil(0.99 * len(waits)) - 1], self._counted())
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
            began = time.perf_counter() - without_a_cpu()
            await self._honest()
            self._seconds.append(time.perf_counter() - without_a_cpu() - began)
            await asyncio.sleep(2 * _TICK)


async def obey(pipe: Any, watch: Watch, commands: Mapping[str, Callable[[Any], Awaitable[Any]]]) -> None:
    """Answer the commands that come through ``pipe``, until ``stop``."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch.tick()), group.create_task(watch.call())]
        while True:
            command, value = await loop.run_in_executor(None, pipe.recv)
            if command == "stop":
                break
            pipe.send(await (watch.read(value) if command == "held" else commands[command](value)))
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

    def held(self, calls: int = 1) -> Held:
        held: Held = self.ask("held", calls)
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
        running.ask("stop")
        process.join(30)
        assert process.exitcode == 0
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def ways(names: Iterable[str], sample: Sequence[str], gate: str) -> list[Any]:
    """Return the ways as parameters of a test. ``sample`` is tried wherever slow tests are, ``gate`` in the gate, too."""
    rest = (pytest.mark.slow, pytest.mark.full, pytest.mark.alone)
    return [
        pytest.param(name, marks=(pytest.mark.slow, *[pytest.mark.gate] * (name == gate)) if name in sample else rest)
        for name in names
    ]


def check(server: Child, attack: Callable[[], Coroutine[Any, Any, None]], most_megabytes: float, most_counted: int) -> str:
    """Try an attack three times, and compare what the middle one costs with the bounds. Return the figures."""
    tries: list[tuple[Held, Held]] = []
    for _ in range(3):
        before = server.held(_CALLS)
        asyncio.run(attack())
        tries.append((before, server.held()))
        server.ask("end")
    grown = max(after.megabytes - before.megabytes for before, after in tries)
    hold = statistics.median(after.hold for _, after in tries)
    # What is left of one try may slow the calls before the next one.
    waited = statistics.median(after.p99 for _, after in tries) - min(before.p99 for before, _ in tries)
    figures = f"{grown:.0f} MB, hold {1000 * hold:.0f} ms, p99 of others {1000 * waited:+.0f} ms"
    assert all(after.counted <= most_counted for _, after in tries)
    assert grown <= most_megabytes, figures
    assert hold <= 0.05, figures
    assert waited <= 0.05, figures
    return figures


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
