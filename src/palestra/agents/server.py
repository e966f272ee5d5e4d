"""The gateway's socket: uvicorn on the running event loop, without its signal handlers and its log."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from palestra.connections import bind
from palestra.errors import MissingExtra

__all__ = ["served"]

_BACKLOG = 4096


@contextlib.asynccontextmanager
async def served(app: Any, host: str, port: int) -> AsyncIterator[str]:
    """Serve ``app`` for the length of the block, which receives the address."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra(f'the gateway needs uvicorn: pip install "palestra[serve]" ({error})') from None

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals belong to the owner of the event loop

    bound = bind(host, port)
    # An answer to a client that went away is not an error of the gateway: uvicorn must not log it.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        backlog=_BACKLOG,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve([bound]))
    try:
        while not server.started:
            if serving.done():
                await serving
            await asyncio.sleep(0.002)
        address, number = bound.getsockname()[:2]
        yield f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"
    finally:
        server.should_exit = True
        await asyncio.wait([serving])
        bound.close()
