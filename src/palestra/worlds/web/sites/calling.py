"""How a WSGI or ASGI application is called for one request, without a server. Requests are answered one after another."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

__all__ = ["Caller", "Request", "Response", "asgi_caller", "wsgi_caller"]

Headers = list[tuple[str, str]]


class Request(NamedTuple):
    """A request of the browser."""

    method: str
    url: str
    headers: Headers
    body: bytes = b""


class Response(NamedTuple):
    """What the application answers."""

    status: int
    headers: Headers
    body: bytes = b""


Caller = Callable[[Request], Response]


def wsgi_caller(application: Callable[..., Iterable[bytes]]) -> Caller:
    """Return a function that calls a WSGI application."""

    def call(asked: Request) -> Response:
        begun: list[tuple[int, Headers]] = []
        written: list[bytes] = []

        def start(status: str, headers: Headers, error: object = None) -> Callable[[bytes], None]:
            begun[:] = [(int(status.split()[0]), [(str(name), str(value)) for name, value in headers])]
            return written.append

        parts = application(_environ(asked), start)
        try:
            written.extend(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        status, headers = begun[0]
        return Response(status, headers, b"".join(written))

    return call


def _environ(asked: Request) -> dict[str, Any]:
    url = urlsplit(asked.url)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.path).decode("latin-1"),
        "QUERY_STRING": url.query,
        "SERVER_NAME": url.hostname or "",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_LENGTH": str(len(asked.body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(asked.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in asked.headers:
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value
        elif key != "CONTENT_LENGTH":
            key = f"HTTP_{key}"
            environ[key] = f"{environ[key]}{';' if key == 'HTTP_COOKIE' else ','} {value}" if key in environ else value
    return environ


def asgi_caller(application: Callable[..., Any]) -> Caller:
    """Return a function that calls an ASGI application, always on the same event loop."""
    loop = asyncio.new_event_loop()
    return lambda asked: loop.run_until_complete(_asgi(application, asked))


async def _asgi(application: Callable[..., Any], asked: Request) -> Response:
    url = urlsplit(asked.url)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote_to_bytes(url.path).decode(errors="replace"),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in asked.headers],
        "client": ("127.0.0.1", 1),
        "server": (url.hostname, 80),
    }
    waiting = [{"type": "http.request", "body": asked.body, "more_body": False}]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application(scope, receive, send)
    start = next(message for message in sent if message["type"] == "http.response.start")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
    body = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
    return Response(start["status"], headers, body)
