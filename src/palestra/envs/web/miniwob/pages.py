"""The pages of MiniWoB++, from the folder of the package, answered inside the browser: there is no server.

The package itself is not imported, because it loads Selenium and Gymnasium.
"""

import importlib.util
import mimetypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from palestra.errors import MissingExtra

if TYPE_CHECKING:
    from playwright.async_api import Route

__all__ = ["ORIGIN", "WINDOW", "answer", "page_address"]

ORIGIN = "http://miniwob.test"
WINDOW = {"width": 500, "height": 320}


def page_address(task: str) -> str:
    """Return the address of the page of ``task``."""
    return f"{ORIGIN}/miniwob/{task}.html"


async def answer(route: "Route") -> None:
    """Answer a request with a file of the package, and refuse everything else."""
    address = route.request.url
    if not address.startswith(f"{ORIGIN}/"):
        await route.abort()
        return
    body = _file(address[len(ORIGIN) + 1 :].split("?")[0].split("#")[0])
    if body is None:
        await route.fulfill(status=404, body="")
        return
    kind = mimetypes.guess_type(address.split("?")[0])[0] or "application/octet-stream"
    await route.fulfill(status=200, body=body, content_type=kind)


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
