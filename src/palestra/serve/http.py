"""The same protocol as plain HTTP and JSON, for `curl`, for probes and for languages without a client; and its OpenAPI page.

Types, rules and codes are those of the WebSocket; a session opened here can be resumed there. It costs a request per call, so
it is for looking and for trying, not for ten thousand episodes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palestra.errors import SchemaError
from palestra.serve.openapi import document
from palestra.serve.sessions import RETRY_AFTER, Sessions
from palestra.serve.tokens import Tokens
from palestra.serve.wire import (
    HTTP_STATUS,
    Call,
    Code,
    Fault,
    FromServer,
    Hello,
    Reply,
    Welcome,
    decode_frame,
    decode_json_frame,
    encode_json_frame,
)

__all__ = ["http_app"]

_log = logging.getLogger("palestra.serve")

PROBE_EVERY = 5.0
"""Seconds for which the answer of the last probe is good."""


def http_app(sessions: Sessions, tokens: Tokens) -> Starlette:
    """The application that answers plain HTTP requests."""
    pages = _Pages(sessions, tokens)
    return Starlette(
        routes=[
            Route("/health", pages.health, methods=["GET"]),
            Route("/openapi.json", pages.openapi, methods=["GET"]),
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
    def __init__(self, sessions: Sessions, tokens: Tokens) -> None:
        self.sessions = sessions
        self.tokens = tokens
        self._probed = -PROBE_EVERY
        self._wrong = ""
        self._probing = asyncio.Lock()

    def guarded(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """``page`` for those who have a token; what goes wrong in it is told as a fault."""

        async def answer(request: Request) -> Response:
            response = await self._answer(page, request)
            self.sessions.metrics.http[str(response.status_code)] += 1
            return response

        return answer

    async def _answer(self, page: Page, request: Request) -> Response:
        owner = self.tokens.owner(request.headers.get("authorization"))
        if owner is None:
            self.sessions.metrics.refused += 1
            return _fault(Code.UNAUTHORIZED, "a bearer token is needed")
        try:
            return await page(request, owner)
        except SchemaError as error:
            return _fault(Code.BAD_FRAME, str(error))
        except Exception:
            _log.exception("%s %s failed", request.method, request.url.path)
            self.sessions.metrics.faults[Code.INTERNAL] += 1
            return _fault(Code.INTERNAL, "the server failed; its log says why")

    async def health(self, request: Request) -> Response:
        """Whether a real environment can be played here, now."""
        async with self._probing:
            if monotonic() - self._probed >= PROBE_EVERY:
                self._wrong = await self.sessions.host.probe()
                self._probed = monotonic()
        status = "failing" if self._wrong else "draining" if self.sessions.draining else "ok"
        return _json({"status": status}, 200 if status == "ok" else 503)

    async def openapi(self, request: Request) -> Response:
        return _json(document(self.sessions.host.offers))

    async def metrics(self, request: Request, owner: bytes) -> Response:
        text = self.sessions.metrics.text({"sessions": len(self.sessions), "workers": self.sessions.host.workers})
        return Response(text, media_type="text/plain; version=0.0.4")

    async def envs(self, request: Request, owner: bytes) -> Response:
        offers = self.sessions.host.offers.values()
        return _json([{"id": offer.spec.id, "description": offer.spec.description} for offer in offers])

    async def open(self, request: Request, owner: bytes) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        found = self.sessions.hello(owner, decode_json_frame(body, Hello))
        if isinstance(found, Fault):
            return _answer(found)
        return _answer(found[1], 201)

    async def renew(self, request: Request, owner: bytes) -> Response:
        hello = Hello(versions=(1,), session=request.path_params["session"] or "-")
        found = self.sessions.hello(owner, hello)
        return _answer(found if isinstance(found, Fault) else found[1])

    async def end(self, request: Request, owner: bytes) -> Response:
        session = self.sessions.find(owner, request.path_params["session"])
        if session is None:
            return _fault(Code.NO_SESSION, "no such session")
        self.sessions.end(session)
        return Response(status_code=204)

    async def call(self, request: Request, owner: bytes) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        call: Call = decode_json_frame(body, Call)
        session = self.sessions.find(owner, request.path_params["session"])
        if session is None:
            return _fault(Code.NO_SESSION, "no such session")
        return _answer(decode_frame(await self.sessions.answer(session, call), FromServer))

    async def _body(self, request: Request) -> bytes | Response:
        limit, parts, size = self.sessions.limits.max_message, [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                return _fault(Code.TOO_LARGE, f"a body of more than {limit} bytes")
            parts.append(part)
        return b"".join(parts)


def _fault(code: Code, message: str) -> Response:
    return _answer(Fault(code=code, message=message))


def _answer(frame: Welcome | Reply | Fault, status: int = 200) -> Response:
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
