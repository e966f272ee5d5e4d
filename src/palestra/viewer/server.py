"""Serves the page over HTTP, read-only and on the loopback address, with the standard library.

Any web site can make a browser send requests to loopback addresses. The server refuses them: a request must name this server as
its host, which excludes rebound DNS names, and must not come from another site. No other site can read or frame a response.

A run's ``report.html`` may come from a stranger. It is served in a sandbox without scripts and with an origin of its own, so it
can neither run code nor read the other runs.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from palestra.foundation.encoding import encode_json
from palestra.viewer.index import RunIndex
from palestra.viewer.page import catalog, page
from palestra.viewer.pictures import pictures_of

__all__ = ["ViewerServer"]

_HOST = "127.0.0.1"
# Seconds that one request for the catalog may spend reading. The page asks again until it has the whole run.
_SLICE = 0.7


# The report has inline styles and drawings, and nothing else.
_REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_HTML = "text/html; charset=utf-8"


class _HttpAnswer(NamedTuple):
    body: bytes
    media_type: str = "application/json"
    status: HTTPStatus = HTTPStatus.OK
    policy: str = ""
    """A Content-Security-Policy instead of the page's."""


class ViewerServer(ThreadingHTTPServer):
    """Serves ``runs`` on the loopback address. ``port`` 0 takes any free port; ``url`` names it."""

    daemon_threads = True

    def __init__(self, runs: Sequence[RunIndex], *, port: int = 0, title: str = "palestra") -> None:
        self.runs = runs
        self.title = title
        self._reading = Lock()
        self.page = page(title, served=True)
        super().__init__((_HOST, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{_HOST}:{self.server_port}/"

    def answer(self, target: str) -> _HttpAnswer:
        """Return the answer to a request for ``target``."""
        try:
            parts = urlsplit(target)
        except ValueError as error:
            return _refused(f"not an address: {error}", HTTPStatus.BAD_REQUEST)
        match parts.path.strip("/").split("/"):
            case [""]:
                return _HttpAnswer(self.page.html.encode(), _HTML)
            case ["catalog.json"]:
                return _HttpAnswer(self._catalog())
            case ["extents.json"]:
                return _HttpAnswer(encode_json([run.extent for run in self.runs]))
            case ["runs", run, "episodes", episode]:
                return self._of_run(run, lambda index: index.line(int(episode.removesuffix(".json"))))
            case ["runs", run, "episodes", episode, "pictures.json"]:
                return self._of_run(run, lambda index: encode_json(pictures_of(index.line(int(episode)))))
            case ["runs", run, "search.json"]:
                text = parse_qs(parts.query).get("text", [""])[0]
                return self._of_run(run, lambda index: encode_json(index.search(text)))
            case ["runs", run, "metrics.json"]:
                return self._of_run(run, RunIndex.metrics)
            case ["runs", run, "vocabulary.json"]:
                return self._of_run(run, RunIndex.vocabulary)
            case ["runs", run, "report.html"]:
                report = self._of_run(run, RunIndex.report)
                return report if report.status != HTTPStatus.OK else _HttpAnswer(report.body, _HTML, policy=_REPORT_POLICY)
        return _refused(f"nothing at {parts.path}")

    def _catalog(self) -> bytes:
        # Columns change and are read only here, by one thread at a time.
        with self._reading:
            for run in self.runs:
                run.refresh(_SLICE / len(self.runs))
            return catalog(self.title, [run.page for run in self.runs])

    def _of_run(self, number: str, read: Callable[[RunIndex], bytes]) -> _HttpAnswer:
        try:
            chosen = dict(enumerate(self.runs))[int(number)]
            return _HttpAnswer(read(chosen))
        except (LookupError, ValueError):
            return _refused("no such run, episode or file")


def _refused(message: str, status: HTTPStatus = HTTPStatus.NOT_FOUND) -> _HttpAnswer:
    return _HttpAnswer(message.encode("utf-8", "replace"), "text/plain; charset=utf-8", status)


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version = "palestra"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        answer = self.server.answer(self.path) if self._from_here() else _HttpAnswer(b"", "text/plain", HTTPStatus.FORBIDDEN)
        self.send_response(answer.status)
        for name, value in {
            "Content-Type": answer.media_type,
            "Content-Length": str(len(answer.body)),
            "Content-Security-Policy": (answer.policy or self.server.page.security_policy) + "; frame-ancestors 'none'",
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
        """Log nothing: request lines are of no interest, and what a browser sends should not reach the terminal."""
