"""HTTP connections that end with their event loop.

A policy or engine may outlive several event loops: ``palestra.collect`` starts one per call, a notebook has its own. Its
connections cannot. They are opened at the first call on a loop, and closed at the latest when that loop shuts down.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable

import aiohttp

__all__ = ["Connections"]


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
