"""A server: uvicorn for the sockets and HTTP, our connections for the WebSockets, one event loop.

``serve`` blocks until SIGTERM or Ctrl-C and then drains: no new sessions and no new episodes, while those under way have
``limits.drain`` seconds to end. ``EnvServer`` is the same as an async context manager, for tests and for embedding.
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import uvicorn

from palestra.errors import UsageError
from palestra.serve.connection import Door
from palestra.serve.host import Host
from palestra.serve.http import http_app
from palestra.serve.sessions import Sessions
from palestra.serve.tokens import Tokens
from palestra.serve.wire import Limits

__all__ = ["EnvServer", "ServeOptions", "serve"]

_log = logging.getLogger("palestra.serve")

_BACKLOG = 4096


class ServeOptions(TypedDict, total=False):
    """How to serve. Every one is optional."""

    host: str
    """The address to listen on; only this machine by default."""
    port: int
    """0 takes a free one."""
    limits: Limits
    isolate: bool
    """Run every plain environment in a worker process, not only those that block."""
    certificate: Path | None
    """A PEM file; with it and ``key`` the server speaks https."""
    key: Path | None


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are the business of whoever runs the loop


class EnvServer:
    """Serves ``ids`` (ids, patterns, references) to whoever has one of ``tokens``, inside an ``async with``."""

    def __init__(self, ids: str | Iterable[str], tokens: str | Iterable[str], **options: Unpack[ServeOptions]) -> None:
        self._options = options
        limits = options.get("limits", Limits())
        self._host = Host(ids, isolate=options.get("isolate", False))
        self.sessions = Sessions(self._host, limits)
        self._tokens = Tokens(tokens)
        self._door = Door(self.sessions, self._tokens)
        self._stack = contextlib.AsyncExitStack()
        self.url = ""
        """Where it listens, once entered."""

    async def __aenter__(self) -> "EnvServer":
        config = self._config()
        listener = _listen(self._options.get("host", "127.0.0.1"), self._options.get("port", 0))
        await self._stack.enter_async_context(self._host)
        self._uvicorn = _Uvicorn(config)
        self.url = self._url(listener)
        self._serving = asyncio.create_task(self._uvicorn.serve([listener]))
        self._sweeping = asyncio.create_task(self._sweep())
        while not self._uvicorn.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweeping.cancel()
        for connection in list(self._door.connections):
            connection.shutdown()
        self._uvicorn.should_exit = True
        await asyncio.wait([self._serving, self._sweeping])
        await self.sessions.end_all()
        await self._stack.aclose()

    async def drain(self) -> None:
        """Refuse what is new and wait until what is old has ended, or time is up."""
        self.sessions.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.sessions.limits.drain):
                while self.sessions.playing:
                    await asyncio.sleep(0.05)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self.sessions.limits.ttl / 4))
            self._door.sweep()

    def _config(self) -> uvicorn.Config:
        certificate, key = self._options.get("certificate"), self._options.get("key")
        if (certificate is None) != (key is None):
            raise UsageError("https needs both a certificate and its key")
        config = uvicorn.Config(
            http_app(self.sessions, self._tokens),
            ws=self._door.connect,  # type: ignore[arg-type]
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=self.sessions.limits.max_sessions + 1000,
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate,
            ssl_keyfile=None if key is None else str(key),
        )
        try:
            config.load()
        except OSError as error:  # of which the errors of ssl are a kind
            raise UsageError(f"{certificate} and {key} cannot be used: {error}") from None
        return config

    def _url(self, listener: socket.socket) -> str:
        host, port = listener.getsockname()[:2]
        secure = self._options.get("certificate") is not None
        if not secure and not ipaddress.ip_address(host).is_loopback:
            _log.warning("tokens and observations travel in the clear: give a certificate, or put a proxy with TLS in front")
        return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def serve(
    ids: str | Iterable[str],
    token: str | Iterable[str],
    *,
    ready: Callable[[str], object] = lambda url: None,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve ``ids`` until SIGTERM or Ctrl-C, then drain. ``ready`` is called with the URL once clients can connect."""
    asyncio.run(_serve(EnvServer(ids, token, **options), ready))


async def _serve(server: EnvServer, ready: Callable[[str], object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with server:
        ready(server.url)
        await stop.wait()
        stop.clear()
        draining = asyncio.create_task(server.drain())
        again = asyncio.create_task(stop.wait())  # a second signal ends the patience
        await asyncio.wait([draining, again], return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, again):
            task.cancel()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listener
