"""The server: uvicorn for sockets and HTTP, our connections for WebSockets, one event loop.

``serve`` blocks until SIGTERM or Ctrl-C and then drains: it accepts no new sessions or episodes, and those that run have
``limits.drain`` seconds to end. ``EnvServer`` does the same as an async context manager, for tests and embedding.
"""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import uvicorn

from palestra.adapters.interrupts import interrupts
from palestra.adapters.loop_thread import run_anywhere
from palestra.adapters.ownership import guarded_task
from palestra.errors import UsageError
from palestra.foundation.resources.descriptors import raise_descriptor_limit
from palestra.serve.connection import Door
from palestra.serve.host import Host
from palestra.serve.http import http_app
from palestra.serve.listener import ACCEPTED_AT_ONCE, Listener, bind
from palestra.serve.requests import SLOT, HttpConnection
from palestra.serve.sessions import Sessions
from palestra.serve.slots import ConnectionSlot, Slots
from palestra.serve.tokens import BearerTokens
from palestra.serve.wire import ServerLimits

__all__ = ["EnvServer", "ServeOptions", "serve"]

_log = logging.getLogger("palestra.serve")

RESERVED = 128
"""Descriptors reserved for files and for closed connections that the system still holds."""
PER_WORKER = 4
"""Descriptors that a worker process takes."""
FEWEST_UNAUTHENTICATED = 4 * ACCEPTED_AT_ONCE
"""Fewest slots for connections without a token. With fewer, the server would close one before it reads its request."""
FEWEST = 2 * FEWEST_UNAUTHENTICATED
"""Fewest connections with which a server is of any use."""


class ServeOptions(TypedDict, total=False):
    """Options of a server. All have defaults."""

    host: str
    """The address to listen on; by default only this machine can connect."""
    port: int
    """The TCP port; 0 takes a free one."""
    limits: ServerLimits
    isolate: bool
    """Run every plain environment in a worker process, not only those that block."""
    any_params: bool
    """Let clients set every parameter of a task, not only those in the class's ``client_params``."""
    certificate: Path | None
    """A PEM file; with it and ``key`` the server speaks HTTPS."""
    key: Path | None


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, slots: Slots) -> None:
        super().__init__(config)
        self._slots = slots

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = [Listener(sock, self._slots, self._connection, self.config.ssl) for sock in sockets]  # type: ignore[misc,unused-ignore]
        self.started = True

    def _connection(self, slot: ConnectionSlot) -> HttpConnection:
        return HttpConnection(config=self.config, server_state=self.server_state, app_state={SLOT: slot})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the owner of the event loop


class EnvServer:
    """Serve ``ids`` (ids, patterns, references) to the holders of ``tokens``, inside an ``async with``."""

    def __init__(self, ids: str | Iterable[str], tokens: str | Iterable[str], **options: Unpack[ServeOptions]) -> None:
        self._options = options
        limits = options.get("limits", ServerLimits())
        self._host = Host(ids, isolate=options.get("isolate", False), any_params=options.get("any_params", False))
        self._tokens = BearerTokens(tokens)
        self.sessions = Sessions(self._host, limits, len(self._tokens))
        self._door = Door(self.sessions, self._tokens)
        self._stack = contextlib.AsyncExitStack()
        self.url = ""
        """The address of the server, set on entry."""

    async def __aenter__(self) -> "EnvServer":
        self._slots = self._slots_within_limits()
        config = self._config()
        listener = bind(self._options.get("host", "127.0.0.1"), self._options.get("port", 0))
        await self._stack.enter_async_context(self._host)
        self._stack.enter_context(interrupts.heard(lambda error: None))  # so that Ctrl-C can be told from an environment's own
        self._uvicorn = _Uvicorn(config, self._slots)
        self.url = self._url(listener)
        self._serving = guarded_task(self._uvicorn.serve([listener]))
        self._sweeping = guarded_task(self._sweep())
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
        self._slots.close()  # connections accepted in the last moment, or whose peer did not read its answer
        await asyncio.sleep(0)
        await self.sessions.end_all()
        await self._stack.aclose()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._slots)

    async def drain(self) -> None:
        """Refuse new sessions and episodes, and wait until the running ones have ended or time is up."""
        self.sessions.draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.sessions.limits.drain):
                while self.sessions.playing:  # noqa: ASYNC110 - a pause of the drain
                    await asyncio.sleep(0.05)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self.sessions.limits.ttl / 4))
            self._door.sweep()

    def _slots_within_limits(self) -> Slots:
        """Return slots for as many connections as the descriptor limit allows."""
        limits, allowed = self.sessions.limits, raise_descriptor_limit()
        taken = RESERVED + len(os.listdir("/dev/fd")) + self._host.isolates * limits.max_workers * PER_WORKER
        wanted = limits.max_sessions + limits.max_unauthenticated
        total = wanted if allowed == resource.RLIM_INFINITY else min(wanted, allowed - taken)
        if total < FEWEST:
            raise UsageError(f"a server needs {taken + FEWEST} open files, but may open {allowed}. Type: ulimit -n 4096")
        if total < wanted:
            _log.warning("the server holds at most %d connections: this process may open %d files (ulimit -Hn)", total, allowed)
        unauthenticated = max(FEWEST_UNAUTHENTICATED, min(limits.max_unauthenticated, total // 4))
        return Slots(total, unauthenticated, len(self._tokens), limits.head)

    def _config(self) -> uvicorn.Config:
        certificate, key = self._options.get("certificate"), self._options.get("key")
        if (certificate is None) != (key is None):
            raise UsageError("HTTPS needs both a certificate and its key")
        config = uvicorn.Config(
            http_app(self.sessions, self._tokens, self._slots, only_here=_is_loopback(self._options.get("host", "127.0.0.1"))),
            ws=self._door.connect,  # type: ignore[arg-type,unused-ignore]
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate,
            ssl_keyfile=None if key is None else str(key),
        )
        try:
            config.load()
        except OSError as error:  # includes ssl.SSLError
            raise UsageError(f"{certificate} and {key} cannot be used: {error}") from None
        return config

    def _url(self, listener: socket.socket) -> str:
        host, port = listener.getsockname()[:2]
        secure = self._options.get("certificate") is not None
        if not secure and not ipaddress.ip_address(host).is_loopback:
            _log.warning("tokens and observations travel unencrypted: pass a certificate, or put a TLS proxy in front")
        return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def serve(
    ids: str | Iterable[str],
    token: str | Iterable[str],
    *,
    ready: Callable[[str], object] = lambda url: None,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve ``ids`` until SIGTERM or Ctrl-C, then drain. Call ``ready`` with the URL once clients can connect.

    It returns after SIGTERM and raises ``KeyboardInterrupt`` after Ctrl-C.
    """
    run_anywhere(_serve(EnvServer(ids, token, **options), ready))


async def _serve(server: EnvServer, ready: Callable[[str], object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        received.append(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    async with server:
        gc.freeze()  # a full collection over every loaded module would hold the loop for 50 ms
        ready(server.url)
        await stop.wait()
        stop.clear()
        draining = asyncio.create_task(server.drain())
        again = asyncio.create_task(stop.wait())  # a second signal ends the drain at once
        await asyncio.wait([draining, again], return_when=asyncio.FIRST_COMPLETED)
        for task in (draining, again):
            task.cancel()
    if received[0] == signal.SIGINT:
        raise KeyboardInterrupt
