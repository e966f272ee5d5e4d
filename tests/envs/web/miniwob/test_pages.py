"""The pages of MiniWoB++ as one document each."""

import importlib.util

import pytest

if importlib.util.find_spec("miniwob") is None:
    pytest.skip("miniwob is not installed", allow_module_level=True)

from palestra.envs.web.miniwob.pages import ORIGIN, Pages, page_address
from palestra.envs.web.miniwob.tasks import TASKS


async def page(task: str) -> bytes:
    status, headers, content = await Pages().visit("GET", page_address(task), [], b"")
    assert status == 200
    assert dict(headers)["Content-Type"] == "text/html"
    return content


async def file(path: str) -> tuple[int, bytes]:
    status, _, content = await Pages().visit("GET", f"{ORIGIN}/{path}", [], b"")
    return status, content


async def test_a_page_holds_its_scripts_and_styles() -> None:
    content = await page("login-user")
    assert b"<script src" not in content
    assert b"<link" not in content
    for path in ("core/core.js", "core/d3.v3.min.js", "common/ui_utils.js", "core/core.css"):
        assert (await file(path))[1] in content


@pytest.mark.parametrize("task", TASKS)
async def test_every_page_ends_each_script_that_it_begins(task: str) -> None:
    content = await page(task)
    assert content.count(b"<script>") + content.count(b"<script ") <= content.count(b"</script>")


async def test_a_script_in_an_encoding_of_its_own_stays_a_file() -> None:
    content = await page("click-pie")
    assert b'<script src="../common/special/click-pie/wheelnav.min.js"></script>' in content
    assert (await file("common/special/click-pie/wheelnav.min.js"))[1].startswith(b"\xef\xbb\xbf")


async def test_the_pictures_of_a_style_are_found_from_the_page() -> None:
    content = await page("choose-date")
    assert b'url("images/' not in content
    assert b'url("/core/jquery-ui/images/' in content
    assert b"url(images/" not in await page("navigate-tree")


async def test_nothing_outside_of_the_folder_is_answered() -> None:
    assert (await file("../__init__.py"))[0] == 404
    assert (await file("miniwob/absent.html"))[0] == 404
    assert (await Pages().visit("POST", page_address("login-user"), [], b""))[0] == 404
