"""The sites of an episode whose requests are recorded, as entries of the HTTP archive format, for a grader of requests.

A site is a box of Palestra, or an address of the user's own: requests for exactly these origins are passed on.
"""

from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

from palestra.errors import InfrastructureError
from palestra.worlds.web.front import Headers
from palestra.worlds.web.sites.hosts import Sites

__all__ = ["Passing", "Recording", "entry"]

_SECONDS = 60.0
_TIME = "2026-01-01T09:00:00Z"
_READABLE = ("application/json", "application/x-www-form-urlencoded")
_DROPPED = frozenset({"host", "content-length", "accept-encoding"})


class Passing(Sites):
    """Answers the requests of one context: with boxes, or with the sites at addresses of the user's own."""

    def __init__(self, origins: Collection[str]) -> None:
        super().__init__({})
        self._origins = frozenset(origins)
        """Hosts with ports, such as ``localhost:7770``, to which requests are passed on."""

    @property
    def hosts(self) -> list[str]:
        return sorted({*self.boxes, *self._origins})

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        netloc = urlsplit(url).netloc
        passed = netloc in self._origins and netloc not in self.boxes
        return await (_passed_on if passed else super().visit)(method, url, headers, body)


class Recording(Passing):
    """Keeps the requests too."""

    def __init__(self, origins: Collection[str]) -> None:
        super().__init__(origins)
        self._begun = 0
        self._answered: dict[int, dict[str, Any]] = {}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The requests that have an answer, in the order in which the browser sent them."""
        return [self._answered[number] for number in sorted(self._answered)]

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        number = self._begun = self._begun + 1
        answer = await super().visit(method, url, headers, body)
        if urlsplit(url).netloc in self.hosts:
            self._answered[number] = entry((method, url, headers, body), answer)
        return answer


async def _passed_on(method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
    """Ask the site at its own address, as the browser wrote it, for an answer without compression, since it is recorded."""
    import aiohttp
    from yarl import URL

    sent = [(name, value) for name, value in headers if name.lower() not in _DROPPED]
    sent.append(("Accept-Encoding", "identity"))
    address = URL(url, encoded=True)
    try:
        async with (
            aiohttp.ClientSession(
                auto_decompress=False, timeout=aiohttp.ClientTimeout(_SECONDS), cookie_jar=aiohttp.DummyCookieJar()
            ) as session,
            session.request(method, address, headers=sent, data=body or None, allow_redirects=False) as answer,
        ):
            return answer.status, list(answer.headers.items()), await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise InfrastructureError(f"{urlsplit(url).netloc} does not answer: {type(error).__name__}") from None


def entry(asked: tuple[str, str, Headers, bytes], answer: tuple[int, Headers, bytes]) -> dict[str, Any]:
    """Return one request and its answer in the HTTP archive format."""
    method, url, headers, body = asked
    status, answered, content = answer
    kinds = {name.lower(): value for name, value in headers}
    named = {name.lower(): value for name, value in answered}
    request: dict[str, Any] = {
        "method": method,
        "url": url,
        "httpVersion": "HTTP/1.1",
        "headers": _pairs(headers),
        "queryString": _pairs(parse_qsl(urlsplit(url).query, keep_blank_values=True)),
        "cookies": [],
        "headersSize": -1,
        "bodySize": len(body),
    }
    if body:
        request["postData"] = {"mimeType": kinds.get("content-type", ""), "text": body.decode(errors="replace")}
    kind = named.get("content-type", "")
    shown: dict[str, Any] = {"size": len(content), "mimeType": kind}
    if kind.startswith(_READABLE):
        shown["text"] = content.decode(errors="replace")
    response = {
        "status": status,
        "statusText": "",
        "httpVersion": "HTTP/1.1",
        "headers": _pairs(answered),
        "cookies": _cookies(answered),
        "content": shown,
        "redirectURL": urljoin(url, named["location"]) if "location" in named else "",
        "headersSize": -1,
        "bodySize": len(content),
    }
    timings = {"send": 0, "wait": 0, "receive": 0}
    return {"startedDateTime": _TIME, "time": 0, "request": request, "response": response, "cache": {}, "timings": timings}


def _pairs(these: Headers) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in these]


def _cookies(headers: Headers) -> list[dict[str, str]]:
    cookies = []
    for name, value in headers:
        if name.lower() == "set-cookie":
            try:
                cookies += [{"name": key, "value": morsel.value} for key, morsel in SimpleCookie(value).items()]
            except CookieError:
                continue
    return cookies
