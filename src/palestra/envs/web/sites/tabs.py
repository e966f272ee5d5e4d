"""The tabs of an episode: what the agent knows of each, and which one it sees.

A window that a page opens is a tab, and the agent sees it next, as in a browser. A page that closes its own tab is no dead
browser: the tab before it is shown, or an empty one if there is none. Each tab has ids, parts and a history of its own.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from palestra.envs.web.changes import changed
from palestra.envs.web.front import Pass
from palestra.envs.web.sites.page import settle
from palestra.envs.web.snapshot import Element, Ids, cleaned, in_window, read_snapshot
from palestra.errors import Unsupported

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["EMPTY", "LINES_PER_PART", "Tab", "Tabs"]

T = TypeVar("T")
EMPTY = "about:blank"
LINES_PER_PART = 200
"""A longer page is shown in parts of this number of elements."""
MOST_TABS = 8
_LONGEST_TITLE = 100
_ARRIVAL_SECONDS = 3.0
"""A window that a page reports and that does not open within this time was open already."""


class Tab:
    """One tab: its page, and what the agent has seen of it."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.back: list[str] = []
        """The addresses before this one."""
        self.forward: list[str] = []
        """The addresses from which ``go_back`` has come."""
        self.ids = Ids()
        self.elements: list[Element] = []
        """All elements of the page, or those in the window."""
        self.part = 0
        self.changed = ""
        """What the last action has changed; empty if the agent sees the tab for the first time."""
        self.document = 0.0
        """When the browser has opened the document: ids count from 1 in each."""

    def adopt(self, other: "Tab") -> None:
        """Take over what the agent knows of ``other``, of whose page this tab shows a copy."""
        self.back, self.forward, self.part = list(other.back), list(other.forward), other.part
        self.ids, self.elements, self.changed = other.ids, other.elements, other.changed

    async def look(self, *, boxes: bool = False, window: bool = False) -> None:
        """Read the page. ``boxes`` reads the places of elements too; ``window`` leaves out what is not in the window."""
        found, document = await self._read(boxes=boxes, window=window)
        if self.document == document:
            elements = self.ids.name(found)
            self.changed = changed(self.elements, elements)
        else:
            self.changed = "a new page" if self.document else ""
            self.document, self.ids, self.part = document, Ids(), 0
            elements = self.ids.name(found)
        self.elements = elements
        self.turn_to(self.part)

    async def look_again(self, *, boxes: bool = False, window: bool = False) -> None:
        """Read a copy of the page that this tab has adopted, and make sure that it looks as the original did."""
        found, self.document = await self._read(boxes=boxes, window=window)
        if [*map(_looks, found)] != [*map(_looks, self.elements)]:
            raise Unsupported("the page holds a state of its own in scripts, which cannot be copied")
        self.ids = self.ids.copied(self.elements, found)

    async def _read(self, *, boxes: bool, window: bool) -> tuple[list[Element], float]:
        text = await self.page.locator("body").aria_snapshot(mode="ai", boxes=(boxes or window) or None)
        document = float(await self.page.evaluate("performance.timeOrigin"))
        found = read_snapshot(text)
        size = self.page.viewport_size
        return in_window(found, size["width"], size["height"]) if window and size is not None else found, document

    @property
    def parts(self) -> int:
        """The number of parts in which the page is shown."""
        return max(1, -(-len(self.elements) // LINES_PER_PART))

    def turn_to(self, part: int) -> None:
        """Show another part of the page."""
        self.part = max(0, min(part, self.parts - 1))

    @property
    def shown(self) -> Sequence[Element]:
        """The elements of the part that the agent sees."""
        return self.elements[self.part * LINES_PER_PART : (self.part + 1) * LINES_PER_PART]


def _looks(one: Element) -> Element:
    return one._replace(ref="", box=None, marks=tuple(mark for mark in one.marks if mark != "focused"))


class Tabs:
    """The tabs of one context, in the order in which they were opened."""

    def __init__(self, context: "BrowserContext", page: "Page") -> None:
        self._context = context
        self.all: list[Tab] = []
        self.problem = ""
        """Why the last window of a page is no tab."""
        self._expected = self._arrived = 0
        self._closing: set[asyncio.Task[None]] = set()
        self.front = self._keep(page)
        """The tab that the agent sees."""
        context.on("page", self._opened)

    def stop(self) -> None:
        """Follow the windows of the context no longer."""
        self._context.remove_listener("page", self._opened)

    def _keep(self, page: "Page") -> Tab:
        tab = Tab(page)
        self.all.append(tab)
        page.on("close", lambda _: self._closed(tab))
        return tab

    def _opened(self, page: "Page") -> None:
        self._arrived += 1
        if len(self.all) < MOST_TABS:
            self.front = self._keep(page)
            return
        self.problem = f"A window was not opened: there are {MOST_TABS} tabs."
        task = asyncio.ensure_future(_quietly_closed(page))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _closed(self, tab: Tab) -> None:
        place = self.all.index(tab)
        self.all.remove(tab)
        if self.front is tab and self.all:
            self.front = self.all[max(0, place - 1)]

    # -------------------------------------------------------------------------------------------------------------- actions

    async def open(self) -> str:
        """Open an empty tab. Return why that is not possible, or an empty string."""
        if len(self.all) >= MOST_TABS:
            return f"There are {MOST_TABS} tabs: close one first."
        self._expected += 1
        await self._context.new_page()
        return ""

    async def close(self) -> str:
        """Close the tab in front. Return why that is not possible, or an empty string."""
        if len(self.all) == 1:
            return "The last tab cannot be closed."
        await self.front.page.close()
        return ""

    async def show(self, number: int) -> str:
        """Bring a tab to the front. Return why that is not possible, or an empty string."""
        if number >= len(self.all):
            return f"There is no tab {number}."
        self.front = self.all[number]
        return ""

    async def surviving(self, doing: Callable[[Tab], Awaitable[T]], otherwise: T) -> T:
        """Do something in the tab in front. If its page closes the tab in the meantime, return ``otherwise``."""
        from playwright.async_api import Error

        tab = self.front
        try:
            return await doing(tab)
        except Error:
            browser = self._context.browser
            if not tab.page.is_closed() or browser is None or not browser.is_connected():
                raise
            return otherwise

    async def settle(self, one: Pass) -> None:
        """Wait until the tab in front stands still, and every window that it opens."""
        while True:
            if not self.all:  # the only page has closed its tab
                await self._context.new_page()
            front = self.front
            self._expected += await self.surviving(lambda tab: settle(tab.page, one), 0)
            await self._arrivals()
            if self.front is front and self.all:
                return

    async def _arrivals(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _ARRIVAL_SECONDS
        while self._arrived < self._expected and loop.time() < end:
            await asyncio.sleep(0.005)
        self._expected = self._arrived

    # ---------------------------------------------------------------------------------------------------------- observation

    async def lines(self) -> list[str]:
        """Return one line for each tab if there are several. The title of a page is quoted like all its texts."""
        if len(self.all) == 1:
            return []
        return [
            f"Tab {number}{' (shown)' if tab is self.front else ''}: {json.dumps(await _title(tab.page), ensure_ascii=False)} "
            f"at {cleaned(tab.page.url)}"
            for number, tab in enumerate(list(self.all))
        ]


async def _title(page: "Page") -> str:
    return " ".join(cleaned(await page.title()).split())[:_LONGEST_TITLE]


async def _quietly_closed(page: "Page") -> None:
    from playwright.async_api import Error

    try:
        await page.close()
    except Error:
        return
