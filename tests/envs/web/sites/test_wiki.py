"""The encyclopedia: its oracle, its questions under any hash seed, its pages."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from palestra.envs.web.sites.wiki import app
from palestra.envs.web.sites.wiki.articles import HOST, address_of, documents_of
from palestra.envs.web.sites.wiki.town import town

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")

from tests.envs.web.sites.playing import in_browser

from palestra.envs.web.sites.env import Errands
from palestra.trajectory import text_of

TOWN = "palestra.envs.web.sites.wiki.town:town"
TEMPLATES = [name for names in town.levels.values() for name in names]


def test_a_task_has_one_answer_and_names_no_link_to_it() -> None:
    for seed in range(2):
        for template in TEMPLATES:
            errand = town.errand(seed, template)
            assert bool(errand.answers) != bool(errand.ends_at)
            assert not any(answer in errand.goal for answer in errand.answers) or template in ("compare", "links")
    assert len({town.errand(seed, "fact").goal for seed in range(40)}) == 40


def get(path: str, query: str = "") -> tuple[str, str]:
    begun: list[str] = []
    parts = app.application({"PATH_INFO": path, "QUERY_STRING": query}, lambda status, headers: begun.append(status))
    return begun[0], b"".join(parts).decode()


def test_the_pages_escape_what_is_asked_and_unknown_pages_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app.prepare()
    app.seed(4)
    title = documents_of(4)[0].title
    assert get("/")[0] == "200 OK"
    assert f"<h1>{title}</h1>" in get(f"/wiki/{title.replace(' ', '_')}")[1]
    assert f">{title}</a>" in get("/search", "q=" + title.replace(" ", "+"))[1]
    assert "<script>" not in get("/search", "q=<script>x")[1]
    assert "Page 4 of 4" in get("/category/person", "page=99")[1]
    assert get("/category/person", "page=x")[0] == "200 OK"
    for path in ("/wiki/Nobody", "/category/dragon", f"/wiki/{title}/edit", "/admin"):
        assert get(path)[0] == "404 Not Found", path


def test_every_other_address_of_an_article_leads_to_the_one_that_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app.prepare()
    app.seed(4)
    title = next(one.title for one in documents_of(4) if " " in one.title)
    own = unquote(address_of(title).removeprefix(f"http://{HOST}"))

    def led(path: str, query: str = "") -> str:
        begun: list[tuple[str, dict[str, str]]] = []
        app.application(
            {"PATH_INFO": path, "QUERY_STRING": query}, lambda status, headers: begun.append((status, dict(headers)))
        )
        return f"{begun[0][0]} {begun[0][1].get('Location', '')}".strip()

    assert led(own) == "200 OK"
    assert led(f"{own}/links", "a=b") == "200 OK"
    for path, query in ((f"/wiki/{title}", ""), (f"{own}/", ""), (own, "action=view"), (f"/wiki/{title}/", "x")):
        assert f"http://{HOST}{led(path, query).removeprefix('302 Found ')}" == address_of(title), path
    assert led("/wiki/No such page", "x") == "404 Not Found"


@in_browser
async def test_an_environment_keeps_its_context_but_nothing_of_the_episode_before() -> None:
    """Cookies, storage, other tabs and the cache are gone. A site with scripts gets a new context."""
    env, other = Errands(TOWN), Errands(TOWN)
    try:
        await env.reset(seed=1)
        seat, page = env._seat, env._tab.page
        assert seat is not None
        await page.evaluate(
            "() => { localStorage.a = 1; sessionStorage.b = 2; document.cookie = 'c=3; max-age=999'; name = 'd'; }"
        )
        tab = await seat.context.new_page()
        await tab.goto(f"http://{HOST}/search?q=a")
        await page.keyboard.down("Shift")
        again, _ = await env.reset(seed=2)
        assert env._seat is seat
        assert seat.context.pages == [page]
        kept = "() => [localStorage.length, sessionStorage.length, document.cookie, name]"
        assert await page.evaluate(kept) == [0, 0, "", ""]
        await page.evaluate("() => addEventListener('click', event => { name = String(event.shiftKey || event.ctrlKey); })")
        await env.step("press [Control+Foo]")
        await page.mouse.click(1, 1)
        assert await page.evaluate("name") == "false"
        fresh, _ = await other.reset(seed=2)
        assert text_of(again) == text_of(fresh)
        assert env._sites is not None
        status, headers, _ = await env._sites.visit("GET", f"http://{HOST}/", [], b"")
        assert (status, dict(headers)["Content-Security-Policy"][:18]) == (200, "script-src 'none';")
        await page.close()
        await env.reset(seed=2)
        assert env._seat is not seat
    finally:
        await env.close()
        await other.close()
