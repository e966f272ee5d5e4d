"""The pages of MiniWoB++ as one document each."""

import importlib.util
import posixpath
from html.parser import HTMLParser

import pytest

if importlib.util.find_spec("miniwob") is None:
    pytest.skip("miniwob is not installed", allow_module_level=True)

from palestra.worlds.web.miniwob import pages
from palestra.worlds.web.miniwob.pages import ORIGIN, Pages, _file, page_address
from palestra.worlds.web.miniwob.tasks import TASKS


async def page(task: str) -> bytes:
    status, headers, content = await Pages().visit("GET", page_address(task), [], b"")
    assert status == 200
    assert dict(headers)["Content-Type"] == "text/html; charset=utf-8"
    return content


async def file(path: str) -> tuple[int, bytes]:
    status, _, content = await Pages().visit("GET", f"{ORIGIN}/{path}", [], b"")
    return status, content


class Parts(HTMLParser):
    """The scripts or styles of a page as a browser finds them: the address and the body of each."""

    def __init__(self, content: bytes, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.found: list[tuple[str | None, str]] = []
        self._inside = False
        self.feed(content.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == self._kind:
            self._inside = True
            self.found.append((dict(attrs).get("src"), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != self._kind

    def handle_data(self, data: str) -> None:
        if self._inside:
            source, body = self.found[-1]
            self.found[-1] = source, body + data


@pytest.mark.parametrize("task", TASKS)
async def test_every_script_of_a_page_is_its_file_from_the_first_to_the_last_character(task: str) -> None:
    original = _file(f"miniwob/{task}.html")
    assert original is not None
    wanted = []
    for source, body in Parts(original, "script").found:
        if source is not None:
            status, content = await file(posixpath.normpath(posixpath.join("miniwob", source)))
            assert status == 200
            wanted.append((None, content.decode("utf-8-sig")))
        else:
            wanted.append((None, body))
    assert Parts(await page(task), "script").found == wanted


async def test_a_script_that_would_end_too_early_stays_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "a.html": b'<script src="a.js"></script><script src="b.js"></script><link rel="stylesheet" href="c.css">',
        "a.js": b"write('</style><SCRIPT></Script>')",
        "b.js": b"\xef\xbb\xbfwrite('</style>')",
        "c.css": b"/* </STYLE> */",
    }
    monkeypatch.setattr(pages, "_file", files.get)
    assert pages._answer.__wrapped__("a.html") == (
        b'<script src="a.js"></script><script>write(\'</style>\')</script><link rel="stylesheet" href="c.css">'
    )


async def test_nothing_outside_of_the_folder_is_answered() -> None:
    assert (await file("../__init__.py"))[0] == 404
    assert (await file("miniwob/absent.html"))[0] == 404
    assert (await Pages().visit("POST", page_address("login-user"), [], b""))[0] == 404
