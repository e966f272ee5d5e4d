"""HTTP connections that end with their event loop, lookups of their hosts, listening sockets, and how these read.

A policy or engine may outlive several event loops: ``palestra.collect`` starts one per call, a notebook has its own. Its
connections cannot. They are opened at the first call on a loop, and closed at the latest when that loop shuts down.
"""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from palestra.errors import UsageError

__all__ = ["Connections", "HostLookup", "Slices", "bind", "free_port"]

SLICE = 2048
"""Bytes of the first slice, and of the next one after a slice that took long."""
LARGEST_SLICE = 8192
"""Slices grow up to this size while they take no time, as those of a body in one piece do."""
QUICK_SECONDS = 0.0002
"""A slice that took less than this may be followed by one of twice its size."""
SHORT = 512
"""Bytes that are handed on at once: a typical call."""
TURN_SECONDS = 0.0005
"""Seconds of handling slices of one connection after which another one has its turn."""
SLICE_SECONDS = 0.002
"""Seconds of handling slices, of all connections together, after which the event loop gets its turn."""


class Connections:
    """The HTTP session of the running event loop, made by ``make`` at its first use."""

    def __init__(self, make: Callable[[], aiohttp.ClientSession]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._held: AsyncGenerator[aiohttp.ClientSession, None] | None = None

    @property
    def closed(self) -> bool:
        """Whether no session is open."""
        return self._session is None or self._session.closed

    async def session(self) -> aiohttp.ClientSession:
        """Return the open session, or open one."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._loop = loop
            self._held = _held(self._make())
            # The generator yields at once, so no other task runs between the check and this line.
            self._session = await anext(self._held)
        return self._session

    async def close(self) -> None:
        """Close the session. The next call opens another one."""
        if self._held is not None:
            await self._held.aclose()


async def _held(session: aiohttp.ClientSession) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Hold ``session`` until the event loop closes its generators, which it does when it shuts down."""
    try:
        yield session
    finally:
        await session.close()


class HostLookup(AbstractResolver):
    """Looks up the hosts of a session in threads of its own.

    aiohttp's resolver takes those of the loop's default executor. Calls that block while they wait for an answer over this
    session (``asyncio.to_thread``) may fill it, and the lookup would wait for one of them to end.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="palestra-hosts")

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        look_up = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host,
                # The address of one link needs its interface.
                host=f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        self._threads.shutdown(wait=False)


class _Turns:
    """The connections of an event loop that have received more than they have handed on, each in its turn."""

    def __init__(self) -> None:
        self._waiting: deque[Slices] = deque()

    def enter(self, slices: "Slices") -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._waiting.append(slices)

    def _go_on(self) -> None:
        until = perf_counter() + SLICE_SECONDS
        try:
            while self._waiting and perf_counter() < until:
                more = False
                try:
                    more = self._waiting[0].hand_on()
                finally:
                    slices = self._waiting.popleft()
                    if more:
                        self._waiting.append(slices)
        finally:  # the failure of one connection does not end the turns of the others
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._go_on)


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


class Slices:
    """Hands on what a connection receives in slices, so that its peer cannot hold up the event loop.

    A read from a socket has up to 256 KiB. As chunks or frames of a few bytes, they take a parser most of a second. So what is
    not short waits for its turn: after each ``SLICE_SECONDS`` the loop goes on, and until everything is handed on, the
    connection reads no more.

    Args:
        transport: The connection.
        handle: Takes a slice.
        reading: Returns whether the connection may be read from, apart from this.
        ready: Returns whether slices are taken now. Call ``resume`` when they are again.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        handle: Callable[[bytes], object],
        reading: Callable[[], bool],
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._transport = transport
        self._handle = handle
        self._reading = reading
        self._ready = ready
        self._rest = bytearray()
        self._size = SLICE
        self._in_turn = False
        self._closed = False

    @property
    def waiting(self) -> int:
        """Bytes that were received and are not handed on yet."""
        return len(self._rest)

    def receive(self, data: bytes) -> None:
        """Hand on ``data``, at once if it is short and nothing waits."""
        if self._closed:
            return
        if len(data) <= SHORT and not self._rest and self._ready():
            self._handle(data)
            return
        self._rest += data
        self._transport.pause_reading()
        self.resume()

    def resume(self) -> None:
        """Hand on what waits, and read on."""
        if not self._in_turn:
            self._in_turn = True
            _turns.setdefault(asyncio.get_running_loop(), _Turns()).enter(self)

    def close(self) -> None:
        """Drop what waits: the connection is closed."""
        self._closed = True
        self._rest.clear()

    def hand_on(self) -> bool:
        """Hand on slices for a turn. Return whether more can be handed on."""
        if self._transport.is_closing():
            self.close()
        now = perf_counter()
        until = now + TURN_SECONDS
        while self._rest and self._ready() and now < until:
            began = now
            part = bytes(self._rest[: self._size])
            del self._rest[: self._size]
            try:
                self._handle(part)
            except BaseException:  # as asyncio does when a protocol fails
                self.close()
                self._transport.abort()
                raise
            if self._transport.is_closing():  # the handler has refused what it was given
                self.close()
            now = perf_counter()
            self._size = min(2 * self._size, LARGEST_SLICE) if now - began < QUICK_SECONDS else SLICE
        self._in_turn = bool(self._rest) and self._ready()
        if not self._rest and not self._closed and self._reading():
            self._transport.resume_reading()
        return self._in_turn


def bind(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to ``host`` and ``port``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named. Without it an answer in two writes takes 44 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another address (--host) or port (--port)"
        ) from None
    return bound


def free_port(host: str) -> int:
    """Return a TCP port of ``host`` that nothing uses now. Another process may take it before you do."""
    with bind(host, 0) as probe:
        return int(probe.getsockname()[1])
