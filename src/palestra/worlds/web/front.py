"""The only door of the jail: a proxy at which each context of a browser shows a password of its own.

The browser has no network, but its loopback. A launcher inside the jail opens one port there and hands the socket to this
process, which answers on it. A context reaches what its ``Visitor`` answers, and nothing else: all contexts of a browser share
the loopback, so the password decides, not the port. There is no tunnel (``CONNECT``), so neither https nor WebSockets pass.
"""

import asyncio
import base64
import hmac
import secrets
import socket
from typing import TYPE_CHECKING, Any, Protocol

from palestra.errors import InfrastructureError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["PORT", "Front", "Headers", "Pass", "Visitor", "handed_over"]

PORT = 3128
"""The port of the proxy, on the loopback of the jail."""
_MOST_BODY = 8 * 2**20
_REALM = 'Basic realm="palestra"'
_OWN_HEADERS = frozenset(
    {"connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_NOT_PASSED = _OWN_HEADERS | {"content-length", "date", "server"}
_DATE = "Thu, 01 Jan 2026 09:00:00 GMT"

Headers = list[tuple[str, str]]


class Visitor(Protocol):
    """What answers the requests of one context."""

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """Answer a request with a status, headers and a body."""
        ...


class Pass:
    """The right of one context to use the proxy, and what it has under way."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor = visitor
        self.name = secrets.token_hex(8)
        self.password = secrets.token_hex(16)
        self.under_way = 0
        """The number of requests that have no answer yet."""
        self.answered = 0
        self.failure: InfrastructureError | None = None
        """Why a request could not be answered."""

    def serve(self, visitor: Visitor) -> None:
        """Let ``visitor`` answer from now on: the next episode in the same context."""
        self.visitor, self.failure = visitor, None

    def proxy(self) -> dict[str, str]:
        """Return the option ``proxy`` of Playwright's ``new_context``."""
        server = f"http://127.0.0.1:{PORT}"
        return {"server": server, "bypass": "<-loopback>", "username": self.name, "password": self.password}


class Front:
    """The proxy of all browsers of one event loop."""

    def __init__(self) -> None:
        self._passes: dict[str, Pass] = {}
        self._runner: web.ServerRunner | None = None

    def admit(self, visitor: Visitor) -> Pass:
        """Return a pass for a new context. Call ``leave`` at its end."""
        made = Pass(visitor)
        self._passes[made.name] = made
        return made

    def leave(self, access: Pass) -> None:
        """Refuse all further requests of this pass. A second call does nothing."""
        self._passes.pop(access.name, None)

    async def serve(self, listener: socket.socket) -> "web.BaseSite":
        """Answer on ``listener``, a port of a jail, until what this returns is stopped."""
        from aiohttp import web

        if self._runner is None:
            self._runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=1.0)
            await self._runner.setup()
        port = web.SockSite(self._runner, listener)
        await port.start()
        return port

    async def close(self) -> None:
        """Close all ports."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def _known(self, shown: str) -> Pass | None:
        try:
            kind, _, word = shown.partition(" ")
            name, _, password = base64.b64decode(word, validate=True).decode().partition(":")
        except ValueError:
            return None
        access = self._passes.get(name)
        if kind.lower() != "basic" or access is None or not hmac.compare_digest(access.password.encode(), password.encode()):
            return None
        return access

    async def _answer(self, request: Any) -> "web.StreamResponse":
        from aiohttp import web

        access = self._known(request.headers.get("Proxy-Authorization", ""))
        if access is None:
            return web.Response(status=407, headers={"Proxy-Authenticate": _REALM})
        if request.method == "CONNECT" or not request.raw_path.startswith("http://"):
            return web.Response(status=403, text="The proxy answers addresses that begin with http:// only.")
        if (request.content_length or 0) > _MOST_BODY:
            return web.Response(status=413, text="The request is too large.")
        access.under_way += 1
        try:
            return await _visited(access, request)
        except InfrastructureError as error:
            access.failure = error
            return web.Response(status=502, text="The site does not answer.")
        finally:
            access.under_way -= 1
            access.answered += 1


async def _visited(access: Pass, request: Any) -> "web.StreamResponse":
    from aiohttp import web

    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > _MOST_BODY:
            return web.Response(status=413, text="The request is too large.")
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS]
    status, answered, content = await access.visitor.visit(request.method, request.raw_path, headers, bytes(body))
    response = web.Response(status=status, body=content)
    response.headers.clear()
    for name, value in answered:
        if name.lower() not in _NOT_PASSED:
            response.headers.add(name, value)
    response.headers["Date"] = _DATE
    return response


async def handed_over(server: socket.socket) -> socket.socket:
    """Return the listening socket that the launcher of a jail sends to ``server``, a unix socket that listens."""
    loop = asyncio.get_running_loop()
    server.setblocking(False)
    connection, _ = await loop.sock_accept(server)
    with connection:
        readable = asyncio.Event()
        loop.add_reader(connection, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(connection)
        _, handles, _, _ = socket.recv_fds(connection, 1, 1)
    if not handles:
        raise InfrastructureError("the launcher of a browser has ended before it handed over its port")
    listener = socket.socket(fileno=handles[0])
    listener.setblocking(False)
    return listener
