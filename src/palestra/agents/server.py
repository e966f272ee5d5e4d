"""The gateway's socket: uvicorn's HTTP protocol on the running event loop.

uvicorn's own server looks every tenth of a second whether it should end, installs signal handlers, and logs clients that go
away. A gateway starts and ends with the episodes that use it, inside the program of a user, so it has none of this.

The protocol is the one of ``h11``, which bounds the head of a request. Every connection reads in slices and has a deadline for
its first request; for one connection above the limit, the oldest that has no request under way is closed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from palestra.agents.limits import GatewayLimits
from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.foundation.resources.connections import Slices, bind

__all__ = ["served"]

_BACKLOG = 4096
_PATIENCE = 1.0
"""Seconds that requests have to end when the gateway ends."""


@contextlib.asynccontextmanager
async def served(app: Any, host: str, port: int, limits: GatewayLimits) -> AsyncIterator[str]:
    """Serve ``app`` for the length of the block, which receives the address."""
    try:
        import uvicorn
        from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
        from uvicorn.server import ServerState
    except ImportError as error:
        raise MissingExtra(f"the gateway needs uvicorn: {how_to_install('serve')} ({error})") from error
    # An answer to a client that went away is not an error of the gateway: uvicorn must not log it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    class Connection(H11Protocol):
        """A connection of one client."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override,unused-ignore]  # uvicorn narrows it, too
            super().connection_made(transport)
            self._slices = Slices(transport, super().data_received, lambda: not self.flow.read_paused)
            opened[self] = None
            self._head = self.loop.call_later(limits.head_seconds, self._give_up)
            if len(opened) > limits.connections:
                idle = next((connection for connection in opened if not connection.answering), self)
                idle.transport.abort()

        @property
        def answering(self) -> bool:
            """Whether a request has arrived and is not answered."""
            return self._asked and not self.cycle.response_complete

        @property
        def _asked(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle  # None before the first request
            return cycle is not None

        def data_received(self, data: bytes) -> None:
            self._slices.receive(data)

        def connection_lost(self, exc: Exception | None) -> None:
            opened.pop(self, None)
            self._head.cancel()
            self._slices.close()
            super().connection_lost(exc)

        def _give_up(self) -> None:
            if not self._asked:
                self.transport.abort()

    opened: dict[Connection, None] = {}
    config = uvicorn.Config(
        app, http=Connection, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=60
    )
    config.load()
    state: Any = ServerState()
    loop = asyncio.get_running_loop()
    listening = bind(host, port)
    server = await loop.create_server(
        lambda: Connection(config=config, server_state=state, app_state={}, _loop=loop), sock=listening, backlog=_BACKLOG
    )
    address, number = listening.getsockname()[:2]
    try:
        yield f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"
    finally:
        server.close()
        await _end(state)


async def _end(state: Any) -> None:
    """Let running requests end, and close every connection."""
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        _, late = await asyncio.wait(list(state.tasks), timeout=_PATIENCE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
    for connection in list(state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)
