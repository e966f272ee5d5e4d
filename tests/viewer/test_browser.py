"""The page in a real browser: every view, the keyboard, and hostile text."""

import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.viewer.browsing import EPISODES, HOSTILE, Watched, segment, serving, write_run

import palestra
from palestra.registry import unregister
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn
from palestra.viewer import export_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write_run(tmp_path_factory.mktemp("run"), *EPISODES)
    (folder / "vocabulary.json").write_text('["<b>zero</b>", "one", "two"]')
    yield from serving(folder)


# ----------------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("address", "selector", "shown"),
    [
        ("", "tbody tr", 4),
        ("", "tbody tr:nth-child(4)", "no score"),
        ("#/r/0?list=tasks", "tbody tr", 3),
        ("#/r/0?list=tasks", "tbody tr:first-child", "1/2"),
        ("#/r/0?list=envs", "tbody tr", 2),
        ("#/r/0/e/0?turn=2", "section.turn", 4),
        ("#/r/0/e/0?turn=2", "section.turn.here", "go left"),
        ("#/r/0/e/0?turn=2", "#turn-0 table.board td", 9),
        ("#/r/0/g/0", ".member", 2),
        ("#/r/0/g/0", ".parting", "first difference, in turn 2"),
        ("#/r/0/e/99", "main", "has no episode 99"),
        ("#/r/7", "main", "no run number 7"),
        ("#/r/0/e/0/constructor", "main", "no view called constructor"),
    ],
)
def test_an_address_shows_its_view(watched: Watched, url: str, address: str, selector: str, shown: int | str) -> None:
    watched.open(url + address)
    part = expect(watched.page.locator(selector))
    if isinstance(shown, int):
        part.to_have_count(shown)
    else:
        part.to_contain_text(shown)


def test_filters_search_and_sorting_are_in_the_address(watched: Watched, url: str) -> None:
    watched.open(url)
    page = watched.page
    page.get_by_label("outcome").select_option("not solved")
    expect(page.locator("tbody tr")).to_have_count(1)
    watched.open(f"{url}#/r/0?sort=reward:down")
    expect(page.locator("tbody tr").first).to_contain_text("1.00")
    page.keyboard.press("/")
    page.keyboard.type("in a haystack")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"text=in\+a\+haystack"))


def test_lines_with_labels_are_not_a_board(watched: Watched, url: str) -> None:
    watched.open(url)
    kinds = (
        "[['1 . 3', '. 2 .'], ['B: -', 'C: -'], ['A: 3 2', 'B: - 1']].map((lines) => boardNodes(lines.join('\\n'))[0].tagName)"
    )
    assert watched.page.evaluate(kinds) == ["TABLE", "SPAN", "SPAN"]


class Lamp(palestra.Env):
    """Draws itself, and tries to do more than that."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "dark", {}

    def step(self, action: str) -> palestra.Step:
        return palestra.Step("bright", 1.0, True, False, {})

    def render(self) -> str:
        return f'<div style="background:#00f;color:#fff"><span onclick="window.hacked=1">lamp</span></div>{HOSTILE}'


def test_boards_are_drawn_by_their_environment(browser: Browser, tmp_path: Path) -> None:
    palestra.register("viewer:Lamp-v0", Lamp)
    write_run(tmp_path, *palestra.collect("viewer:Lamp-v0", lambda text: "on", n=1, progress=False))
    serve = serving(tmp_path)
    watched = Watched(browser.new_page(), url := next(serve))
    watched.open(f"{url}#/r/0/e/0")
    picture = watched.page.locator(".picture").first
    expect(picture.locator("div").first).to_have_css("background-color", "rgb(0, 0, 255)")
    picture.locator("span").first.click()
    assert watched.page.locator("main script, main img, main svg, [onclick], [onload]").count() == 0
    watched.assert_clean()
    watched.page.close()
    next(serve, None)
    unregister("viewer:Lamp-v0")


def test_thinking_is_folded(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/2")
    fold = watched.page.locator(".said.policy details").first
    expect(fold.locator(".folded")).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator(".folded")).to_have_text("hm")


@pytest.mark.gate
@pytest.mark.parametrize("colour", ["mask", "logprob", "advantage", "version"])
def test_the_tokens(watched: Watched, url: str, colour: str) -> None:
    watched.open(f"{url}#/r/0/e/0/tokens?colour={colour}")
    page = watched.page
    expect(page.locator(".segment")).to_have_count(1)
    expect(page.locator(".stretch.sampled")).to_have_count(3)
    expect(page.locator(".stretch.sampled .token")).to_have_count(60)
    expect(page.locator(".token").first).to_have_text("<b>zero</b>")
    token = page.locator(".stretch.sampled .token").first
    assert token.evaluate("t => getComputedStyle(t).backgroundColor") != "rgba(0, 0, 0, 0)"
    token.hover()
    expect(page.locator(".readout")).to_contain_text("turn 1 · log-prob −3.000 (p = 0.050)")


def test_the_keyboard(watched: Watched, url: str) -> None:
    watched.open(url)
    page = watched.page
    steps = "j #/r/0/e/0, j #/r/0/e/1, n turn=1, n turn=2, t /e/1/tokens, k /e/0/tokens, g /g/0, c /e/0, u #/r/0"
    for key, address in (step.split(" ") for step in steps.split(", ")):
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(re.escape(address) + "$"))
        if shown := re.search(r"/e/(\d+)", address):  # the address changes before the episode has come
            expect(page.get_by_role("link", name=f"episode {shown[1]}")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("dialog")).to_contain_text("next episode")


def test_dark_and_light(watched: Watched, url: str) -> None:
    watched.open(url)
    before = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    watched.page.keyboard.press("d")
    assert watched.page.evaluate("getComputedStyle(document.body).backgroundColor") != before


# ----------------------------------------------------------------------------------------------------------- hostile text


@pytest.mark.gate
@pytest.mark.parametrize(
    "view", ["", "#/r/0?list=tasks", "#/r/0?list=envs", "#/r/0/e/3", "#/r/0/e/3/tokens", "#/r/0/e/3/raw", "#/r/0/g/3"]
)
def test_hostile_text_is_inert_in_every_view(watched: Watched, url: str, view: str) -> None:
    watched.open(url + view)
    for summary in watched.page.locator("summary").all():
        summary.click()
    watched.page.wait_for_function("document.querySelector('main').textContent.includes('window.hacked=1')")
    assert watched.page.locator("main script, main svg, [onerror], [onload], a[href^=javascript]").count() == 0
    shown = watched.page.locator("body").inner_text()
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x1b\x00]", shown)
    watched.assert_clean()


@pytest.mark.gate
def test_steering_characters_are_shown_by_name(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/3")
    body = watched.page.locator(".said.policy .body").first
    expect(body).to_contain_text("U+202Etxt.exeU+2066")
    expect(body).to_contain_text("\u241b[31mred")
    assert watched.page.locator("main img").count() == 1, "the PNG is drawn, the SVG is not"


def test_a_megabyte_in_one_line_comes_in_pieces(watched: Watched, url: str) -> None:
    watched.open(f"{url}#/r/0/e/3")
    more = watched.page.get_by_role("button", name=re.compile("show more"))
    expect(more).to_have_text("show more (980,000 characters left)")
    more.click()
    expect(more).to_have_text("show more (780,000 characters left)")


@pytest.mark.gate
def test_the_exported_page_needs_nobody(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(export_page(EPISODES, HOSTILE), encoding="utf-8")
    context = browser.new_context(offline=True)
    watched = Watched(context.new_page(), file.as_uri())
    watched.open(file.as_uri())
    expect(watched.page.locator("tbody tr")).to_have_count(4)
    watched.open(file.as_uri() + "#/r/0?text=haystack")
    expect(watched.page.locator("tbody tr")).to_have_count(1)
    for view in ("#/r/0/e/3", "#/r/0/e/3/tokens", "#/r/0/g/0"):
        watched.open(file.as_uri() + view)
        expect(watched.page.locator("main")).not_to_be_empty()
    watched.assert_clean()
    context.close()


@pytest.mark.alone
def test_an_episode_of_100_000_tokens_opens_within_two_seconds(browser: Browser, tmp_path: Path) -> None:
    long = Trajectory(
        Task("x:y"), StopReason.TERMINATED, tuple(Turn("o", Completion("a" * 2000)) for _ in range(50)), (segment(50, 2000),)
    )
    write_run(tmp_path, long)
    serve = serving(tmp_path)
    url = next(serve)
    page = browser.new_page()
    page.goto(url)
    page.wait_for_selector("body[data-ready=yes]")
    for view, shown in (("#/r/0/e/0", "section.turn"), ("#/r/0/e/0/tokens?colour=logprob", ".token")):
        start = perf_counter()
        page.evaluate(f"location.hash = '{view}'")
        page.wait_for_selector(shown)
        assert perf_counter() - start <= 2.0
    page.close()
    next(serve, None)
