"""The page over HTTP, for this machine only: standard library, read-only, bound to loopback.

Pages of other sites can make a browser send requests to loopback. They get nothing: a request must name this server as its host
(which a rebound DNS name does not), may not come from another site, and no answer may be read or framed by one.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from palestra.encoding import encode_json
from palestra.viewer.index import RunIndex
from palestra.viewer.page import catalog, page
from palestra.viewer.pictures import pictures_of

__all__ = ["ViewerServer"]

_HOST = "127.0.0.1"
# How long a catalog may be waited for. A page that is told of part of a run asks again.
_SLICE = 0.7


class _Answer(NamedTuple):
    body: bytes
    media_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK


class ViewerServer(ThreadingHTTPServer):
    """Serves ``runs`` on loopback. ``port`` 0 takes any free one; ``url`` says which."""

    daemon_threads = True

    def __init__(self, runs: Sequence[RunIndex], *, port: int = 0, title: str = "palestra") -> None:
        self.runs = runs
        self.title = title
        self._reading = Lock()
        self.page = page(title, served=True)
        super().__init__((_HOST, port), _Handler)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{_HOST}:{self.server_port}/"

    def answer(self, target: str) -> _Answer:
        """What a request for ``target`` is told."""
        parts = urlsplit(target)
        match parts.path.strip("/").split("/"):
            case [""]:
                return _Answer(self.page.html.encode(), "text/html; charset=utf-8")
            case ["catalog.json"]:
                return _Answer(self._catalog())
            case ["runs", run, "episodes", episode]:
                return self._of_run(run, lambda found: found.line(int(episode.removesuffix(".json"))))
            case ["runs", run, "episodes", episode, "pictures.json"]:
                return self._of_run(run, lambda found: encode_json(pictures_of(found.line(int(episode)))))
            case ["runs", run, "search.json"]:
                text = parse_qs(parts.query).get("text", [""])[0]
                return self._of_run(run, lambda found: encode_json(found.search(text)))
            case ["runs", run, "metrics.json"]:
                return self._of_run(run, RunIndex.metrics)
            case ["runs", run, "vocabulary.json"]:
                return self._of_run(run, RunIndex.vocabulary)
        return _not_found(f"nothing at {parts.path}")

    def _catalog(self) -> bytes:
        # The only place where columns change, and the only one where they are read: one thread at a time.
        with self._reading:
            for run in self.runs:
                run.refresh(_SLICE / len(self.runs))
            return catalog(self.title, [run.page for run in self.runs])

    def _of_run(self, number: str, read: Callable[[RunIndex], bytes]) -> _Answer:
        try:
            chosen = dict(enumerate(self.runs))[int(number)]
            return _Answer(read(chosen))
        except (LookupError, ValueError):
            return _not_found("there is no such run or episode")


def _not_found(message: str) -> _Answer:
    return _Answer(message.encode("utf-8", "replace"), "text/plain; charset=utf-8", HTTPStatus.NOT_FOUND)


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version = "palestra"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        answer = self.server.answer(self.path) if self._from_here() else _Answer(b"", "text/plain", HTTPStatus.FORBIDDEN)
        self.send_response(answer.status)
        for name, value in {
            "Content-Type": answer.media_type,
            "Content-Length": str(len(answer.body)),
            "Content-Security-Policy": self.server.page.security_policy + "; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - the name http.server calls

    def _from_here(self) -> bool:
        port = self.server.server_port
        known_host = self.headers.get("Host") in (f"{_HOST}:{port}", f"localhost:{port}")
        return known_host and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: request lines are not news, and a terminal is not the place for what a browser sends."""
