"""A small HTTP server for one test: it answers requests with a function of the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def answering(
    answer: Callable[[web.Request], Awaitable[web.Response]], path: str = "/{path:.*}", method: str = "POST"
) -> AsyncIterator[str]:
    """Serve ``answer`` under ``path``, by default under every path. Yields the address, without a slash at its end.

    The method ``*`` is every method. Requests that have no answer at the end are dropped.
    """
    app = web.Application()
    app.router.add_route(method, path, answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield site.name
    finally:
        await runner.cleanup()
