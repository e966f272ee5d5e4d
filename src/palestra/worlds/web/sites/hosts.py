"""The sites of one episode, as its browser context reaches them: by host, through the proxy, and nothing else."""

import importlib.util
import mimetypes
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from palestra.errors import InfrastructureError, MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.worlds.web.front import Headers
from palestra.worlds.web.sites.boxes import SiteBox
from palestra.worlds.web.sites.calling import Request, Response

__all__ = ["Sites", "bare"]

_QUIET = "script-src 'none'; connect-src 'none'"
"""The policy of a site without scripts. A link with ``ping`` would send a request of its own."""
_KEPT = 8
"""The number of pages whose bytes are kept for a copy of the episode, beside those of the tabs that the agent has seen."""


class Sites:
    """Answers the requests of one context."""

    def __init__(self, boxes: dict[str, SiteBox]) -> None:
        self.boxes = boxes
        self.pages: dict[str, Response] = {}
        """Address → the page that was answered last. A copy of the episode shows it again without asking the application."""
        self.again: dict[str, Response] = {}
        """Pages to show again, once each."""

    @property
    def hosts(self) -> list[str]:
        """The hosts that the episode reaches."""
        return list(self.boxes)

    @property
    def addresses(self) -> str:
        """The addresses of the hosts, for the agent."""
        return ", ".join(f"http://{host}/" for host in self.hosts)

    def require_alive(self) -> None:
        """Raise ``InfrastructureError`` if the process of a site has ended."""
        dead = [host for host, box in self.boxes.items() if not box.alive]
        if dead:
            raise InfrastructureError(f"the site {dead[0]} has ended")

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """Answer with the site that the address names."""
        address = urlsplit(url)
        box = self.boxes.get(address.netloc)
        if box is None:
            return 403, [("Content-Type", "text/plain")], b"There is no such site."
        if method == "GET" and url in self.again:
            return self.again.pop(url)
        static = _static_file(box.site.static, address.path) if method in ("GET", "HEAD") else None
        answer = await box.ask(Request(method, url, headers, body)) if static is None else static
        if not box.site.scripts:
            answer = answer._replace(headers=[*answer.headers, ("Content-Security-Policy", _QUIET)])
        is_page = any(name.lower() == "content-type" and value.startswith("text/html") for name, value in answer.headers)
        if static is None and is_page:
            self.pages.pop(url, None)  # the page answered last stands last: the first ones are dropped
            self.pages[url] = answer
            while len(self.pages) > _KEPT:
                del self.pages[next(iter(self.pages))]
        return answer

    def source(self, address: str) -> tuple[str, Response] | None:
        """Return the page at ``address`` as it was answered last, with its address."""
        address = bare(address)
        return (address, self.pages[address]) if address in self.pages else None

    def show_again(self, address: str, page: Response) -> None:
        """Answer the next request for ``address`` with ``page``, without its cookies."""
        headers = [pair for pair in page.headers if pair[0].lower() != "set-cookie"]
        self.again[bare(address)] = page._replace(headers=headers)

    def close(self) -> None:
        """End all boxes."""
        for box in self.boxes.values():
            box.close()


def bare(address: str) -> str:
    """Return an address as a request has it: without what follows ``#``."""
    return address.partition("#")[0]


def _static_file(folders: tuple[tuple[str, str], ...], path: str) -> Response | None:
    for prefix, folder in folders:
        if path.startswith(prefix):
            content = _file(folder, unquote(path[len(prefix) :]))
            kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
            return Response(404, []) if content is None else Response(200, [("Content-Type", kind)], content)
    return None


@cache
def _file(folder: str, name: str) -> bytes | None:
    package, _, inside = folder.partition(":")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtra(f"the static files of a site are in the package {package}: {how_to_install('sites')}")
    root = (Path(spec.origin).parent / inside).resolve()
    path = (root / name).resolve()
    return path.read_bytes() if path.is_file() and root in path.parents else None
