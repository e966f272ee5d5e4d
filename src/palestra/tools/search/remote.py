"""Search over the network, in Search-R1's protocol: ``POST /retrieve {"queries": […], "topk": k, "return_scores": true}``.

Palestra's own server adds ``source``, the content hash of its index, to the reply. The server limits the size of requests, and
the client limits the size of replies. A server that cannot be reached is an infrastructure failure, which the model does not
see.
"""

import asyncio
import secrets as randomness
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from palestra.errors import InfrastructureError, MissingExtra, UsageError
from palestra.tools.search.documents import Document, Hit, Retriever

__all__ = ["RemoteRetriever", "retrieval_app"]

_MOST_QUERIES = 256
_MOST_DOCUMENTS = 100
_MOST_BYTES = 2**23
_TRIES = 3
_LONGEST_SOURCE = 200
"""Characters of what a server calls its index that are recorded."""


class _Ask(msgspec.Struct):
    queries: list[str]
    topk: int = 3
    return_scores: bool = False


class _Found(msgspec.Struct):
    id: str = ""
    contents: str = ""


class _Scored(msgspec.Struct):
    document: _Found
    score: float = 0.0


class _SearchReply(msgspec.Struct):
    result: list[list[_Scored]]
    source: str = ""


def retrieval_app(retriever: Retriever, *, tokens: Sequence[str] = ()) -> Any:
    """An aiohttp application that answers ``/retrieve``; if there are ``tokens``, only to clients that send one of them."""
    web = _aiohttp().web

    async def retrieve(request: Any) -> Any:
        given = request.headers.get("Authorization", "")
        # Every token is compared, so that the time of an answer does not tell which one came close.
        matches = [randomness.compare_digest(given.encode(), f"Bearer {token}".encode()) for token in tokens]
        if tokens and not any(matches):
            return _refusal(web, 401, "a token is needed")
        try:
            ask = msgspec.json.decode(await request.read(), type=_Ask)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _refusal(web, 400, "expected queries, topk and return_scores")
        if len(ask.queries) > _MOST_QUERIES or not 1 <= ask.topk <= _MOST_DOCUMENTS:
            return _refusal(web, 400, f"at most {_MOST_QUERIES} queries, and topk from 1 to {_MOST_DOCUMENTS}")
        rankings = await retriever.retrieve(ask.queries, ask.topk)
        body = {"result": [[_written(hit, ask.return_scores) for hit in hits] for hits in rankings], "source": retriever.source}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/retrieve", retrieve)
    return app


def _written(hit: Hit, scored: bool) -> dict[str, Any]:
    document = {"id": hit.document.id, "contents": f'"{hit.document.title}"\n{hit.document.text}'}
    return {"document": document, "score": hit.score} if scored else document


def _refusal(web: Any, status: int, text: str) -> Any:
    return web.Response(status=status, body=msgspec.json.encode({"error": text}), content_type="application/json")


class RemoteRetriever:
    """A client of a retrieval server."""

    def __init__(self, url: str, *, token: str = "", seconds: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise UsageError("the address of a retrieval server begins with http:// or https://: write http://HOST:PORT")
        if token and parts.username:
            raise UsageError("pass a token or put a user and password into the address of the retrieval server, not both")
        self._url = f"{url.rstrip('/')}/retrieve"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._seconds = seconds
        self._session: Any = None
        self.secrets = tuple(filter(None, (token, parts.password)))
        """What must never be shown."""
        self.source = ""
        """The content hash of the server's index, as of its last answer; empty if the server does not say."""

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        ask = msgspec.json.encode(_Ask(list(queries), k, True))
        for attempt in range(_TRIES):
            status, body = await self._post(ask)
            if status == 200:
                return self._read(body, len(queries))
            if 400 <= status < 500 and status != 429:
                raise InfrastructureError(f"the retrieval server refused the request with status {status}")
            if attempt + 1 < _TRIES:
                await asyncio.sleep(0.1 * 4**attempt)
        raise InfrastructureError(f"the retrieval server failed {_TRIES} times (last status: {status or 'no connection'})")

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, ask: bytes) -> tuple[int, bytes]:
        aiohttp = _aiohttp()
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=aiohttp.ClientTimeout(total=self._seconds))
        try:
            async with self._session.post(self._url, data=ask, allow_redirects=False) as reply:
                return reply.status, await _at_most(reply.content, _MOST_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError):
            # Not chained: what these say may hold the address with a password in it.
            return 0, b""

    def _read(self, body: bytes, expected: int) -> list[list[Hit]]:
        try:
            reply = msgspec.json.decode(body, type=_SearchReply)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise InfrastructureError("the retrieval server answered with something else than documents") from None
        if len(reply.result) != expected:
            raise InfrastructureError(f"the retrieval server answered {len(reply.result)} of {expected} queries")
        self.source = reply.source[:_LONGEST_SOURCE]
        return [[_hit(scored) for scored in hits[:_MOST_DOCUMENTS]] for hits in reply.result]


def _hit(scored: _Scored) -> Hit:
    first, newline, rest = scored.document.contents.partition("\n")
    title, text = (first.strip('"'), rest) if newline else ("", first)
    return Hit(Document(scored.document.id, title, text), scored.score)


async def _at_most(stream: Any, limit: int) -> bytes:
    parts = bytearray()
    async for part in stream.iter_chunked(2**16):
        parts += part
        if len(parts) > limit:
            raise InfrastructureError(f"the retrieval server sent more than {limit} bytes")
    return bytes(parts)


def _aiohttp() -> Any:
    try:
        import aiohttp
        import aiohttp.web
    except ImportError:
        raise MissingExtra("searching over the network needs aiohttp: pip install aiohttp") from None
    return aiohttp
