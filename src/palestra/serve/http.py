"""The same protocol as plain HTTP and JSON, for `curl`, probes and languages without a client, with its OpenAPI page.

Types, rules and codes are those of the WebSocket, and a session opened here can be resumed there. Each call costs a request,
so this is meant for inspection and first tries, not for ten thousand episodes.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from palestra.errors import SchemaError
from palestra.foundation.telemetry.prometheus import CONTENT_TYPE
from palestra.serve.faults import RETRY_AFTER
from palestra.serve.openapi import document
from palestra.serve.requests import SLOT
from palestra.serve.sessions import Sessions
from palestra.serve.slots import ConnectionSlot, Slots
from palestra.serve.tokens import BearerTokens
from palestra.serve.wire import (
    HTTP_STATUS,
    CallFrame,
    Code,
    Fault,
    FromServer,
    Hello,
    ReplyFrame,
    Welcome,
    decode_frame,
    decode_json_frame,
    encode_json_frame,
)

__all__ = ["http_app"]

_log = logging.getLogger("palestra.serve")

PROBE_EVERY = 5.0
"""Seconds for which the result of a probe is reused."""


LARGE_ANSWER = 2**16
"""Bytes of an answer that is refused if the share of its token is used up. Smaller ones say what is wrong."""


def http_app(sessions: Sessions, tokens: BearerTokens, slots: Slots, *, only_here: bool = False) -> Starlette:
    """Return the application that answers plain HTTP requests. ``only_here``: it listens on a loopback address."""
    pages = _Pages(sessions, tokens, slots, only_here=only_here)
    return Starlette(
        routes=[
            Route("/health", pages.health, methods=["GET"]),
            Route("/openapi.json", pages.guarded(pages.openapi), methods=["GET"]),
            Route("/metrics", pages.guarded(pages.metrics), methods=["GET"]),
            Route("/v1/envs", pages.guarded(pages.envs), methods=["GET"]),
            Route("/v1/sessions", pages.guarded(pages.open), methods=["POST"]),
            Route("/v1/sessions/{session}", pages.guarded(pages.renew), methods=["GET"]),
            Route("/v1/sessions/{session}", pages.guarded(pages.end), methods=["DELETE"]),
            Route("/v1/sessions/{session}/calls", pages.guarded(pages.call), methods=["POST"]),
        ]
    )


Page = Callable[[Request, bytes], Awaitable[Response]]


class _Pages:
    def __init__(self, sessions: Sessions, tokens: BearerTokens, slots: Slots, *, only_here: bool) -> None:
        self.only_here = only_here
        self.sessions = sessions
        self.slots = slots
        self.tokens = tokens
        self._probed = -PROBE_EVERY
        self._wrong = ""
        self._probing = asyncio.Lock()

    def guarded(self, page: Page) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Return ``page`` behind the token check; its exceptions become faults."""

        async def answer(request: Request) -> ASGIApp:
            response = await self._answer(page, request)
            self.sessions.metrics.http[str(response.status_code)] += 1
            owner = self.tokens.owner(request.headers.getlist("authorization"))
            return response if owner is None else self._counted(response, owner)

        return answer

    async def _answer(self, page: Page, request: Request) -> Response:
        owner = self.tokens.owner(request.headers.getlist("authorization"))
        if owner is None:
            self.sessions.metrics.refused += 1
            return _fault(Code.UNAUTHORIZED, "exactly one bearer token is required: Authorization: Bearer …")
        slot: ConnectionSlot = request.scope["state"][SLOT]
        if not slot.authenticate_for(owner, self.sessions.limits.max_deadline + self.sessions.limits.ttl):
            return _fault(Code.BUSY, "this token has reached its limit of connections")
        try:
            return await page(request, owner)
        except SchemaError as error:
            return _fault(Code.BAD_FRAME, str(error))
        except ClientDisconnect:  # no error of the server: it must neither count as one nor fill the log
            return _fault(Code.BAD_FRAME, "the client went away before its request was complete")
        except Exception:  # noqa: BLE001 - an internal error is answered and logged
            _log.exception("%s %s failed", request.method, request.url.path)
            self.sessions.metrics.faults[Code.INTERNAL] += 1
            return _fault(Code.INTERNAL, "the server failed; the reason is in its log")

    def _counted(self, response: Response, owner: bytes) -> ASGIApp:
        """Return ``response``, whose bytes count against ``owner``'s share until the client has read them."""
        unfinished, size = self.sessions.unfinished, 2 * len(response.body)
        if size > LARGE_ANSWER and not unfinished.room(owner, size):
            share = f"its share, {unfinished.share} bytes (max_unfinished)"
            return _fault(Code.BUSY, f"answers of this token that wait exceed {share}")

        async def send_counted(scope: Scope, receive: Receive, send: Send) -> None:
            unfinished.take(owner, size)
            try:
                await response(scope, receive, send)
            finally:
                unfinished.give_back(owner, size)

        return send_counted

    async def health(self, request: Request) -> Response:
        """Report whether a real environment can be played here, now.

        A server that only this machine can reach answers without a token only under its own name. A web page whose name was
        made to point here has another one.
        """
        host = request.headers.get("host", "")
        owner = self.tokens.owner(request.headers.getlist("authorization"))
        if self.only_here and owner is None and not _names_this_machine(host):
            return _json({"status": "refused: this host is not the server's name; ask for 127.0.0.1, or send a token"}, 421)
        async with self._probing:
            if monotonic() - self._probed >= PROBE_EVERY:
                self._wrong = await self.sessions.host.probe()
                self._probed = monotonic()
        status = "failing" if self._wrong else "draining" if self.sessions.draining else "ok"
        return _json({"status": status}, 200 if status == "ok" else 503)

    async def openapi(self, request: Request, owner: bytes) -> Response:
        return _json(document(self.sessions.host.offers))

    async def metrics(self, request: Request, owner: bytes) -> Response:
        metrics, host = self.sessions.metrics, self.sessions.host
        metrics.evicted = self.slots.evicted
        text = metrics.text({"sessions": len(self.sessions), "workers": host.workers, "connections": len(self.slots)})
        return Response(text, media_type=CONTENT_TYPE)

    async def envs(self, request: Request, owner: bytes) -> Response:
        offers = self.sessions.host.offers.values()
        return _json([{"id": offer.spec.id, "description": offer.spec.description} for offer in offers])

    async def open(self, request: Request, owner: bytes) -> Response:
        body = await self._body(request, owner)
        if isinstance(body, Response):
            return body
        opened = self.sessions.hello(owner, decode_json_frame(body, Hello))
        if isinstance(opened, Fault):
            return _answer(opened)
        _, welcome = opened
        return _answer(welcome, 201)

    async def renew(self, request: Request, owner: bytes) -> Response:
        hello = Hello(versions=(1,), session=request.path_params["session"] or "-")
        opened = self.sessions.hello(owner, hello)
        if isinstance(opened, Fault):
            return _answer(opened)
        _, welcome = opened
        return _answer(welcome)

    async def end(self, request: Request, owner: bytes) -> Response:
        session = self.sessions.find(owner, request.path_params["session"])
        if session is None:
            return _fault(Code.NO_SESSION, "no such session")
        self.sessions.end(session)
        return Response(status_code=204)

    async def call(self, request: Request, owner: bytes) -> Response:
        body = await self._body(request, owner)
        if isinstance(body, Response):
            return body
        call: CallFrame = decode_json_frame(body, CallFrame)
        session = self.sessions.find(owner, request.path_params["session"])
        if session is None:
            return _fault(Code.NO_SESSION, "no such session")
        return _answer(decode_frame(await self.sessions.answer(session, call, len(body)), FromServer))

    async def _body(self, request: Request, owner: bytes) -> bytes | Response:
        """Return the body of ``request``. While it arrives, its bytes count against ``owner``'s share."""
        limit, unfinished = self.sessions.limits.max_message, self.sessions.unfinished
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.stream():
                if size + len(part) > limit:
                    return _fault(Code.TOO_LARGE, f"the body is larger than {limit} bytes")
                if not unfinished.room(owner, len(part)):
                    return _fault(
                        Code.BUSY,
                        f"incomplete requests of this token exceed its share, {unfinished.share} bytes (max_unfinished)",
                    )
                unfinished.take(owner, len(part))
                size += len(part)
                parts.append(part)
        finally:
            unfinished.give_back(owner, size)
        return b"".join(parts)


def _names_this_machine(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname if "[" not in host or "]" in host else None
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name or "").is_loopback
    except ValueError:
        return False


def _fault(code: Code, message: str) -> Response:
    return _answer(Fault(code=code, message=message))


def _answer(frame: Welcome | ReplyFrame | Fault, status: int = 200) -> Response:
    if not isinstance(frame, Fault):
        return _json(frame, status)
    response = _json(frame, HTTP_STATUS[frame.code])
    if frame.code in (Code.BUSY, Code.DRAINING):
        response.headers["Retry-After"] = str(max(1, round(frame.retry_after or RETRY_AFTER)))
    if frame.code is Code.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(value: Any, status: int = 200) -> Response:
    body = encode_json_frame(value) if isinstance(value, msgspec.Struct) else msgspec.json.encode(value)
    return Response(body, status, media_type="application/json")
