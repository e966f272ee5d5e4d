"""When the list of tabs changes. A stand-in for Playwright's context opens and closes windows at chosen moments."""

from collections.abc import Callable
from typing import Any, cast

import pytest

pytest.importorskip("playwright", reason="Playwright is not installed")

from playwright.async_api import Error

from palestra.envs.web.front import Headers, Pass
from palestra.envs.web.sites.calling import Answer
from palestra.envs.web.sites.tabs import MOST_TABS, Tabs
from palestra.envs.web.sites.visit import Sites


class Nobody:
    """A visitor whom no page asks."""

    async def visit(self, method: str, url: str, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        raise AssertionError(url)


class Emitter:
    """What a page and a context have in common."""

    def __init__(self) -> None:
        self.listeners: list[tuple[str, Callable[[Any], None]]] = []

    def on(self, event: str, listener: Callable[[Any], None]) -> None:
        self.listeners.append((event, listener))

    def remove_listener(self, event: str, listener: Callable[[Any], None]) -> None:
        self.listeners.remove((event, listener))

    def emit(self, event: str, given: Any) -> None:
        for name, listener in list(self.listeners):
            if name == event:
                listener(given)


class Page(Emitter):
    """A page that stands still until the test closes it."""

    url = "http://windows.test/"
    viewport_size = None
    closed = False
    text = '- button "Go" [ref=e1]'

    def is_closed(self) -> bool:
        return self.closed

    def check(self) -> None:
        if self.closed:
            raise Error("Target page, context or browser has been closed")

    async def close(self) -> None:
        self.closed = True

    async def evaluate(self, script: str) -> Any:
        self.check()
        return [True, False, 0]

    async def title(self) -> str:
        self.check()
        return "Start"

    def locator(self, selector: str) -> "Page":
        return self

    async def aria_snapshot(self, **options: Any) -> str:
        self.check()
        return self.text

    def navigate(self, text: str) -> None:
        self.text = text
        self.emit("domcontentloaded", self)


class Context(Emitter):
    """A context in a living browser."""

    @property
    def browser(self) -> "Context":
        return self

    def is_connected(self) -> bool:
        return True

    def open(self) -> Page:
        page = Page()
        self.emit("page", page)
        return page

    async def new_page(self) -> Page:
        return self.open()


def following() -> tuple[Context, Page, Tabs, Pass]:
    context, page = Context(), Page()
    return context, page, Tabs(cast("Any", context), cast("Any", page)), Pass(Nobody())


async def test_a_window_of_a_page_is_shown_after_the_next_action_only() -> None:
    context, page, tabs, one = following()
    first = tabs.front
    other = context.open()
    assert tabs.front is first
    assert tabs.all == [first]
    await tabs.settle(one)
    assert tabs.front.page is cast("Any", other)
    other.closed = True
    assert [cast("Any", tab.page) for tab in tabs.all] == [page, other]
    await tabs.settle(one)
    assert tabs.front is first
    page.closed = True
    await tabs.settle(one)
    assert len(tabs.all) == 1
    assert not tabs.front.page.is_closed()


async def test_a_tab_that_closes_while_it_is_read_is_no_dead_browser() -> None:
    context, page, tabs, one = following()
    context.open().closed = True
    await tabs.settle(one)
    page.closed = True
    assert await tabs.surviving(lambda tab: tab.look(), None) is None
    await tabs.settle(one)
    assert await tabs.surviving(lambda tab: tab.look(), None) is True


async def test_titles_are_those_that_the_agent_has_seen() -> None:
    context, _, tabs, one = following()
    await tabs.front.look()
    context.open()
    await tabs.settle(one)
    assert tabs.lines(tabs.front) == [
        'Tab 0: "Start" at http://windows.test/',
        'Tab 1 (shown): "" at http://windows.test/',
    ]


async def test_waiting_windows_count_against_the_limit() -> None:
    context, _, tabs, one = following()
    for _ in range(3 * MOST_TABS):
        context.open()
    await tabs.settle(one)
    assert len(tabs.all) == MOST_TABS
    assert tabs.problem


async def test_a_document_is_new_when_the_browser_says_so() -> None:
    _, page, tabs, _ = following()
    tab = tabs.front
    assert await tab.look()
    assert tab.changed == ""
    assert not await tab.look()
    assert tab.changed == "nothing"
    page.navigate('- button "Other" [ref=e7]')
    assert await tab.look()
    assert (tab.changed, [one.ref for one in tab.elements]) == ("a new page", ["e1"])


async def test_nothing_listens_after_the_end() -> None:
    context, page, tabs, one = following()
    other = context.open()
    await tabs.settle(one)
    tabs.stop()
    assert (context.listeners, page.listeners, other.listeners) == ([], [], [])


def test_a_page_is_shown_again_without_its_cookies_and_without_the_fragment() -> None:
    sites = Sites({})
    page = Answer(200, [("Content-Type", "text/html"), ("Set-Cookie", "a=b")], b"one")
    sites.pages["http://a.test/1"] = page
    assert sites.source("http://a.test/1#top") == ("http://a.test/1", page)
    assert sites.source("http://a.test/2") is None
    sites.show_again("http://a.test/1#top", page)
    assert sites.again == {"http://a.test/1": Answer(200, [("Content-Type", "text/html")], b"one")}
