"""The pages of MiniWoB++, from the folder of the package, answered by the proxy of the jail: there is no server.

The package itself is not imported, because it loads Selenium and Gymnasium.
"""

import importlib.util
import mimetypes
from functools import cache
from pathlib import Path

from palestra.envs.web.front import Headers
from palestra.errors import MissingExtra

__all__ = ["ORIGIN", "WINDOW", "Pages", "page_address"]

ORIGIN = "http://miniwob.test"
WINDOW = {"width": 500, "height": 320}
_KEEP = f"max-age={100 * 365 * 24 * 3600}, immutable"
"""A hundred years: the proxy dates its answers with the beginning of the episode, which is long ago for the browser."""


def page_address(task: str) -> str:
    """Return the address of the page of ``task``."""
    return f"{ORIGIN}/miniwob/{task}.html"


class Pages:
    """Answers the requests of a context with files of the package, and refuses everything else.

    The files never change, and the answers say so: the browser keeps them, and a reset loads nothing.
    """

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        """Answer a request."""
        address = url.partition("#")[0].partition("?")[0]
        content = _file(address[len(ORIGIN) + 1 :]) if method == "GET" and address.startswith(f"{ORIGIN}/") else None
        if content is None:
            return 404, [("Content-Type", "text/plain")], b""
        kind = mimetypes.guess_type(address)[0] or "application/octet-stream"
        return 200, [("Content-Type", kind), ("Cache-Control", _KEEP)], content


@cache
def _folder() -> Path:
    found = importlib.util.find_spec("miniwob")
    if found is None or found.origin is None:
        raise MissingExtra('the tasks of MiniWoB++ need the package miniwob: pip install "palestra[web]"')
    return (Path(found.origin).parent / "html").resolve()


@cache
def _file(name: str) -> bytes | None:
    path = (_folder() / name).resolve()
    return path.read_bytes() if path.is_file() and _folder() in path.parents else None
