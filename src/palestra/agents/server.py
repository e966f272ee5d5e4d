"""The gateway's socket: uvicorn's HTTP protocol on the running event loop.

uvicorn's own server looks every tenth of a second whether it should end, installs signal handlers, and logs clients that go
away. A gateway starts and ends with the episodes that use it, inside the program of a user, so it has none of this.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from palestra.connections import bind
from palestra.errors import MissingExtra
from palestra.installation import how_to_install

__all__ = ["served"]

_BACKLOG = 4096
_PATIENCE = 1.0
"""Seconds that requests have to end when the gateway ends."""


@contextlib.asynccontextmanager
async def served(app: Any, host: str, port: int) -> AsyncIterator[str]:
    """Serve ``app`` for the length of the block, which receives the address."""
    try:
        import uvicorn
        from uvicorn.server import ServerState
    except ImportError as error:
        raise MissingExtra(f"the gateway needs uvicorn: {how_to_install('serve')} ({error})") from None
    # An answer to a client that went away is not an error of the gateway: uvicorn must not log it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_keep_alive=60)
    config.load()
    state: Any = ServerState()
    loop = asyncio.get_running_loop()
    listening = bind(host, port)
    protocol: Any = config.http_protocol_class
    server = await loop.create_server(
        lambda: protocol(config=config, server_state=state, app_state={}, _loop=loop), sock=listening, backlog=_BACKLOG
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
