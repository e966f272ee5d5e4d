"""A network that misbehaves on purpose: a proxy between client and server that breaks things one frame at a time.

Point a client at it to see whether anything is lost or counted twice::

    async with FaultProxy(server_host, server_port, seed=0) as proxy:
        env = RemoteEnv(f"{proxy.url}#game:GuessTheNumber-v0", token=token)

Everything happens in this process, on loopback, and every choice is drawn from the seed.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from palestra.foundation.seeding import derive

__all__ = ["EVEN_RATES", "FaultKind", "FaultProxy"]


class FaultKind(StrEnum):
    """What can happen to a frame."""

    CUT = "cut"
    """The connection ends in the middle of it."""
    DELAY = "delay"
    """It arrives late, and so does everything behind it."""
    DUPLICATE = "duplicate"
    """It arrives twice."""
    REORDER = "reorder"
    """It arrives after the next one."""
    DROP = "drop"
    """It never arrives, though the connection stays."""
    HALF_OPEN = "half_open"
    """From here on nothing passes in either direction, and neither side gets an error."""


EVEN_RATES: Mapping[FaultKind, float] = {
    FaultKind.CUT: 0.04,
    FaultKind.DELAY: 0.08,
    FaultKind.DUPLICATE: 0.08,
    FaultKind.REORDER: 0.08,
    FaultKind.DROP: 0.01,
    FaultKind.HALF_OPEN: 0.005,
}
"""The chance of each fault, per frame. What costs the client a wait is rarer, so that a test of thousands ends."""


class FaultProxy:
    """Listens on loopback and passes WebSocket frames on, faultily."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        seed: int = 0,
        rates: Mapping[FaultKind, float] = EVEN_RATES,
        delay: float = 0.02,
    ) -> None:
        self._target = (host, port)
        self._kinds = list(rates)
        self._edges = np.cumsum([rates[kind] for kind in self._kinds])
        self._rng = derive(seed, "chaos")
        self.delay = delay
        self.counts: Counter[FaultKind] = Counter()
        """How often each fault has happened."""
        self.url = ""
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "FaultProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def draw(self) -> FaultKind | None:
        """What happens to the next frame."""
        index = int(np.searchsorted(self._edges, self._rng.random(), side="right"))
        return self._kinds[index] if index < len(self._kinds) else None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        writers = [writer]
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                upstream_reader, upstream = await asyncio.open_connection(*self._target)
                writers.append(upstream)
                await self._pass_on(reader, writer, upstream_reader, upstream)
            finally:
                for one in writers:
                    one.transport.abort()
                self._running.discard(task)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
    ) -> None:
        upstream.write(await reader.readuntil(b"\r\n\r\n"))  # the handshake is left alone
        writer.write(await upstream_reader.readuntil(b"\r\n\r\n"))
        dead = asyncio.Event()
        ways = [_Way(self, reader, upstream, dead), _Way(self, upstream_reader, writer, dead)]
        tasks = [asyncio.create_task(way.run()) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Way:
    """One direction of one connection."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dead: asyncio.Event
    ) -> None:
        self.proxy = proxy
        self.reader = reader
        self.writer = writer
        self.dead = dead
        self.held = b""

    async def run(self) -> None:
        reading = asyncio.create_task(_read_frame(self.reader))
        try:
            while True:
                await asyncio.wait([reading], timeout=self.proxy.delay if self.held else None)
                if not reading.done():  # nothing came that could overtake what is held back
                    self._send(b"")
                    continue
                frame = reading.result()
                reading = asyncio.create_task(_read_frame(self.reader))
                if not self.dead.is_set() and not await self._forward(frame):
                    return
        finally:
            reading.cancel()

    async def _forward(self, frame: bytes) -> bool:
        fault = self.proxy.draw()
        if fault is not None:
            self.proxy.counts[fault] += 1
        match fault:
            case FaultKind.CUT:
                self.writer.write(frame[: len(frame) // 2])
                return False
            case FaultKind.HALF_OPEN:
                self.dead.set()
            case FaultKind.DROP:
                pass
            case FaultKind.REORDER if not self.held:
                self.held = frame
            case FaultKind.DUPLICATE:
                self._send(frame + frame)
            case FaultKind.DELAY:
                await asyncio.sleep(self.proxy.delay)
                self._send(frame)
            case _:
                self._send(frame)
        return True

    def _send(self, data: bytes) -> None:
        held, self.held = self.held, b""
        self.writer.write(data + held)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """One whole WebSocket frame, as it stands on the wire."""
    head = await reader.readexactly(2)
    size = head[1] & 0x7F
    if size >= 126:
        more = await reader.readexactly(2 if size == 126 else 8)
        head, size = head + more, int.from_bytes(more, "big")
    return head + await reader.readexactly(size + (4 if head[1] & 0x80 else 0))
