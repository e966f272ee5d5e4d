"""HTTP connections that end with their event loop, and the sockets that servers listen on.

A policy or engine may outlive several event loops: ``palestra.collect`` starts one per call, a notebook has its own. Its
connections cannot. They are opened at the first call on a loop, and closed at the latest when that loop shuts down.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable

import aiohttp

from palestra.errors import UsageError

__all__ = ["Connections", "bind", "free_port"]


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
