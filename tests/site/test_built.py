"""The built site in a browser: links, names, three clicks to everything, accessibility, narrow screens, search, filters.

``bash scripts/site.sh`` builds the site and runs these tests; ``PALESTRA_SITE`` names the folder.
"""

import functools
import http.server
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = [pytest.mark.site, pytest.mark.slow, pytest.mark.browser]
ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("PALESTRA_SITE", "."))
WIDTHS = (1400, 390)
SAMPLE = (
    "index.html",
    "contents.html",
    "gallery.html",
    "changelog.html",
    "api/index.html",
    "api/core.html",
    "how-to/train.html",
    "how-to/eight-gpus.html",
    "coming-from/gem.html",
    "reference/command-line.html",
    "reference/recipes.html",
    "reference/suite/Sokoban.html",
    "results/agentgym-audit.html",
    "files/examples/own_environment.py.html",
)
"""Pages of every kind; the nightly run looks at all of them."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


class Links(HTMLParser):
    """The addresses that a page links to, those in its text, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := found.get(key))}
        for key in ("href", "src"):
            if (target := found.get(key)) and "://" not in target and not target.startswith(("data:", "mailto:")):
                self.targets.add(target)


@pytest.fixture(scope="module")
def pages() -> dict[str, Links]:
    if "PALESTRA_SITE" not in os.environ:
        pytest.skip("bash scripts/site.sh builds the site and runs this test")
    return {path.relative_to(SITE).as_posix(): Links(path) for path in sorted(SITE.rglob("*.html"))}


def leads_to(page: str, target: str) -> tuple[str, str]:
    """Return the file below the site that a link of ``page`` leads to, and the anchor in it."""
    address, anchor = urldefrag(urljoin(f"/{page}", target))
    return unquote(address).lstrip("/") or "index.html", unquote(anchor)


def test_every_link_leads_somewhere(pages: dict[str, Links]) -> None:
    broken = []
    for page, links in pages.items():
        for target in links.targets if page != "404.html" else ():
            file, anchor = leads_to(page, target)
            inside = anchor if file in pages and not anchor.startswith(("?", ":~:", "__")) else ""
            if not (SITE / file).exists() or (inside and inside not in pages[file].anchors):
                broken.append((page, target))
    assert broken == []


def test_every_public_name_has_an_anchor(pages: dict[str, Links]) -> None:
    sys.path.insert(0, str(ROOT / "docs" / "site"))
    try:
        import api  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)
    anchors = {anchor for page, links in pages.items() if page.startswith("api/") for anchor in links.anchors}
    known = {module.name: module for module in api.modules(ROOT / "src")}
    names = {api.home(name, module, known) for module in known.values() for name in module.names}
    packages = {name for name in names if (ROOT / "src" / name.replace(".", "/")).is_dir() or f"{name}" in known}
    assert len(names) > 1000
    assert sorted(names - packages - anchors) == []
    assert all((SITE / "source" / f"{module.file}.txt").exists() for module in known.values() if module.name != "palestra")


WANTED = {
    "install": ("how-to/install.html", "pip install"),
    "write an environment": ("tutorials/02-write-an-environment.html", "class Parity"),
    "lend a tool": ("tutorials/04-lend-tools.html", "UseTools"),
    "train on a GPU": ("how-to/eight-gpus.html", "palestra train"),
    "serve": ("how-to/serve-environments.html", "palestra serve"),
    "cite": ("how-to/cite.html", "@software"),
    "report a hole": ("security.html", "Report a vulnerability"),
}


@pytest.mark.parametrize("goal", WANTED)
def test_a_new_reader_gets_there_in_three_clicks(pages: dict[str, Links], goal: str) -> None:
    wanted, text = WANTED[goal]
    seen, reached = {"index.html"}, {"index.html"}
    for _ in range(3):
        reached = {leads_to(page, target)[0] for page in reached if page in pages for target in pages[page].targets} - seen
        seen |= reached
    assert wanted in seen
    plain = re.sub(r"<[^>]+>", "", (SITE / wanted).read_text())
    assert text in plain


def test_pages_for_coding_agents_list_every_page(pages: dict[str, Links]) -> None:
    listed = set(re.findall(r"\]\(([^)]+\.html)\)", (SITE / "llms.txt").read_text()))
    assert listed - set(pages) == set()
    assert len(listed) > 100
    assert "# 2 Write an environment and check it" in (SITE / "llms-full.txt").read_text()


@pytest.fixture(scope="module")
def address(pages: dict[str, Links]) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield browser
        browser.close()


def opened(browser: Browser, address: str, width: int, scheme: str) -> tuple[Page, list[str]]:
    """Return a page, and the list in which requests to other sites and errors will be."""
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
    )
    context.set_default_timeout(120_000)
    page = context.new_page()
    trouble: list[str] = []
    page.on("request", lambda request: None if request.url.startswith((address, "data:")) else trouble.append(request.url))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    return page, trouble


def looked_at(browser: Browser, address: str, names: list[str], width: int, scheme: str) -> dict[str, list[str]]:
    """Return page → what is wrong with it at this width and in this color scheme."""
    axe = Path(os.environ["PALESTRA_AXE"]).read_text()
    page, trouble = opened(browser, address, width, scheme)
    wrong = {}
    for name in names:
        page.goto(address + name)
        found = [f"asks for {one}" for one in trouble]
        trouble.clear()
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"wider than {width} px")
        page.evaluate(axe)
        result = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        found += [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in result["violations"]]
        if found:
            wrong[name] = found
    page.context.close()
    return wrong


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_sample_of_pages_is_accessible_and_fits(browser: Browser, address: str, width: int, scheme: str) -> None:
    assert looked_at(browser, address, list(SAMPLE), width, scheme) == {}


@pytest.mark.full
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.timeout(3600)
def test_all_pages_are_accessible_and_fit(browser: Browser, address: str, pages: dict[str, Links], width: int) -> None:
    assert looked_at(browser, address, sorted(pages), width, "light") == {}


def test_the_search_finds_a_page_without_another_site(browser: Browser, address: str) -> None:
    page, trouble = opened(browser, address, 1400, "light")
    page.goto(address)
    page.get_by_role("button", name="Search").first.click()
    page.locator("input:visible").first.fill("ScalingInter")
    expect(page.locator("a:visible", has_text="ScalingInter").first).to_be_visible()
    assert trouble == []
    page.context.close()


def test_the_gallery_filters_and_works_without_a_script(browser: Browser, address: str) -> None:
    page, _ = opened(browser, address, 1400, "light")
    page.goto(f"{address}gallery.html")
    cards = page.locator("article.env:visible")
    everything = cards.count()
    assert everything > 40
    page.get_by_label("Kind").select_option("terminal")
    expect(cards).to_have_count(1)
    expect(page.locator("form.filters output")).to_have_text(f"1 of {everything} families")
    assert page.url.endswith("#?kind=terminal")
    page.reload()
    expect(cards).to_have_count(1)
    page.context.close()
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{address}gallery.html")
    assert plain.locator("article.env:visible").count() == everything
    expect(plain.locator("form.filters")).to_be_hidden()
    context.close()
