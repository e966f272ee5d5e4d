"""The encyclopedia: its oracle, its questions under any hash seed, its pages."""

from pathlib import Path
from urllib.parse import unquote

import pytest

from palestra.worlds.web.sites.wiki import app
from palestra.worlds.web.sites.wiki.articles import HOST, address_of, documents_of
from palestra.worlds.web.sites.wiki.town import town

pytest.importorskip("playwright", reason="Playwright is not installed")
pytest.importorskip("yaml", reason="PyYAML is not installed")
pytest.importorskip("time_machine", reason="time-machine is not installed")

from tests.worlds.web.sites.playing import in_browser

from palestra.trajectory import text_of
from palestra.worlds.web.sites.env import Errands

TOWN = "palestra.worlds.web.sites.wiki.town:town"
TEMPLATES = [name for names in town.levels.values() for name in names]


def test_a_task_has_one_answer_and_names_no_link_to_it() -> None:
    for seed in range(2):
        for template in TEMPLATES:
            errand = town.errand(seed, template)
            assert bool(errand.answers) != bool(errand.ends_at)
            assert not any(answer in errand.goal for answer in errand.answers) or template in ("compare", "links")
    assert len({town.errand(seed, "fact").goal for seed in range(40)}) == 40


def get(path: str, query: str = "") -> tuple[str, str, str]:
    """The status, the place that the answer leads to, and the page."""
    begun: list[tuple[str, dict[str, str]]] = []
    given = {"PATH_INFO": path, "QUERY_STRING": query}
    parts = app.application(given, lambda status, headers: begun.append((status, dict(headers))))
    return begun[0][0], begun[0][1].get("Location", ""), b"".join(parts).decode()


@pytest.fixture
def title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The title of an article of the encyclopedia that was made with seed 4."""
    monkeypatch.chdir(tmp_path)
    app.prepare()
    app.seed(4)
    return next(one.title for one in documents_of(4) if " " in one.title)


def test_the_pages_escape_what_is_asked_and_unknown_pages_are_not_found(title: str) -> None:
    assert get("/")[0] == "200 OK"
    assert f"<h1>{title}</h1>" in get(f"/wiki/{title.replace(' ', '_')}")[2]
    assert f">{title}</a>" in get("/search", "q=" + title.replace(" ", "+"))[2]
    assert "<script>" not in get("/search", "q=<script>x")[2]
    assert "Page 4 of 4" in get("/category/person", "page=99")[2]
    assert get("/category/person", "page=x")[0] == "200 OK"
    for path in ("/wiki/Nobody", "/category/dragon", f"/wiki/{title}/edit", "/admin"):
        assert get(path)[0] == "404 Not Found", path
    assert get("/wiki/No such page", "x")[:2] == ("404 Not Found", "")


def test_every_other_address_of_an_article_leads_to_the_one_that_is_compared(title: str) -> None:
    own = unquote(address_of(title).removeprefix(f"http://{HOST}"))
    assert get(own)[:2] == get(f"{own}/links", "a=b")[:2] == ("200 OK", "")
    for path, query in ((f"/wiki/{title}", ""), (f"{own}/", ""), (own, "action=view"), (f"/wiki/{title}/", "x")):
        status, there, _ = get(path, query)
        assert (status, f"http://{HOST}{there}") == ("302 Found", address_of(title)), path


@in_browser
async def test_an_environment_keeps_its_context_but_nothing_of_the_episode_before() -> None:
    """Cookies, storage, other tabs and the cache are gone. A site with scripts gets a new context."""
    env, other = Errands(TOWN), Errands(TOWN)
    try:
        await env.reset(seed=1)
        seat, page = env._visit.seat, env._visit.tab.page
        await page.evaluate(
            "() => { localStorage.a = 1; sessionStorage.b = 2; document.cookie = 'c=3; max-age=999'; name = 'd'; }"
        )
        tab = await seat.context.new_page()
        await tab.goto(f"http://{HOST}/search?q=a")
        await page.keyboard.down("Shift")
        again, _ = await env.reset(seed=2)
        assert env._visit.seat is seat
        assert seat.context.pages == [page]
        kept = "() => [localStorage.length, sessionStorage.length, document.cookie, name]"
        assert await page.evaluate(kept) == [0, 0, "", ""]
        await page.evaluate("() => addEventListener('click', event => { name = String(event.shiftKey || event.ctrlKey); })")
        await env.step("press [Control+Foo]")
        await page.mouse.click(1, 1)
        assert await page.evaluate("name") == "false"
        fresh, _ = await other.reset(seed=2)
        assert text_of(again) == text_of(fresh)
        status, headers, _ = await env._visit.sites.visit("GET", f"http://{HOST}/", [], b"")
        assert (status, dict(headers)["Content-Security-Policy"][:18]) == (200, "script-src 'none';")
        await page.close()
        await env.reset(seed=2)
        assert env._visit.seat is not seat
    finally:
        await env.close()
        await other.close()
