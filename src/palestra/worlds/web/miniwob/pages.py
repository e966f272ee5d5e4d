"""The pages of MiniWoB++, from the folder of the package, answered by the proxy of the jail: there is no server.

A page is one document: its scripts, its styles and their pictures are written into it. Every further file of a page would cost
the browser, its network process and Playwright a request per reset, even if the browser has kept the file. And an element whose
content is a picture has no size until the picture is there: if it came later, what the agent sees would depend on the machine.

The package itself is not imported, because it loads Selenium and Gymnasium.
"""

import base64
import importlib.util
import mimetypes
import posixpath
import re
from functools import cache
from pathlib import Path

from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install
from palestra.worlds.web.front import Headers

__all__ = ["ORIGIN", "TASK_AREA", "WINDOW", "Pages", "page_address"]

ORIGIN = "http://miniwob.test"
WINDOW = {"width": 500, "height": 320}
TASK_AREA = (160, 210)
"""The width and the height of the part of a page that is the task, in pixels from the left and the top."""
_KEEP = f"max-age={100 * 365 * 24 * 3600}, immutable"
"""A hundred years: the proxy dates its answers with the beginning of the episode, which is long ago for the browser."""
_SCRIPT = re.compile(rb'<script src="([^"]+)"></script>')
_STYLE = re.compile(rb'<link rel="stylesheet"(?: type="text/css")? href="([^"]+)">')
_OWN_STYLE = re.compile(rb"(?<=<style>).*?(?=</style>)", re.DOTALL)
_ADDRESS = re.compile(rb"""url\(\s*["']?((?!data:|#|/|https?:|%22)[^"')]+?)["']?\s*\)""")
_ALONE = {
    ".js": re.compile(rb"</script|<!--", re.IGNORECASE),
    ".css": re.compile(rb"</style", re.IGNORECASE),
}
"""What would end a script or a style too early inside a document. Such a file is loaded separately."""
_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8. It may stand only at the beginning of a file."""


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
        content = _answer(address[len(ORIGIN) + 1 :]) if method == "GET" and address.startswith(f"{ORIGIN}/") else None
        if content is None:
            return 404, [("Content-Type", "text/plain")], b""
        kind = mimetypes.guess_type(address)[0] or "application/octet-stream"
        kind += "; charset=utf-8" if kind == "text/html" else ""
        return 200, [("Content-Type", kind), ("Cache-Control", _KEEP)], content


@cache
def _folder() -> Path:
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise MissingExtra(f"the tasks of MiniWoB++ need the package miniwob: {how_to_install('web')}")
    return (Path(spec.origin).parent / "html").resolve()


@cache
def _answer(name: str) -> bytes | None:
    """Return a file. A page has its scripts, its styles and their pictures in it. Texts are UTF-8, and the answer says so."""
    content = _file(name)
    if content is None or not name.endswith(".html"):
        return content

    def inside(match: "re.Match[bytes]") -> bytes:
        path = _beside(name, match[1])
        text = _file(path)
        kind = posixpath.splitext(path)[1]
        if text is None or kind not in _ALONE or _ALONE[kind].search(text):
            return match[0]
        text = text.removeprefix(_MARK)
        if kind == ".js":
            return b"<script>" + text + b"</script>"
        return b"<style>" + _with_pictures(text, path) + b"</style>"

    content = _OWN_STYLE.sub(lambda style: _with_pictures(style[0], name), content)
    return _STYLE.sub(inside, _SCRIPT.sub(inside, content))


def _with_pictures(style: bytes, name: str) -> bytes:
    """Return the text of a style of the file ``name`` with its pictures in it. Addresses of other files begin at the root."""

    def inside(match: "re.Match[bytes]") -> bytes:
        path = _beside(name, match[1])
        picture, kind = _file(path), mimetypes.guess_type(path)[0] or ""
        if picture is None or not kind.startswith("image/"):
            return b"url(/" + path.encode() + b")"
        return b"url(data:" + kind.encode() + b";base64," + base64.b64encode(picture) + b")"

    return _ADDRESS.sub(inside, style)


def _beside(name: str, address: bytes) -> str:
    """Return the path of a file that the file ``name`` calls ``address``."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), address.decode()))


@cache
def _file(name: str) -> bytes | None:
    path = (_folder() / name).resolve()
    return path.read_bytes() if path.is_file() and _folder() in path.parents else None
