"""The tabs of an episode: what the agent knows of each, and which one it sees.

A window that a page opens is a tab, and the agent sees it next, as in a browser. A page that closes its own tab is no dead
browser: the tab before it is shown, or an empty one if there is none. Each tab has ids, parts and a history of its own.

Pages open and close windows at any moment. The list of tabs, and which one is in front, change only in ``Tabs.settle`` and by
actions on tabs: an action is performed in the tab that the agent has seen, and an observation is that of one tab.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from palestra.errors import Unsupported
from palestra.worlds.web.changes import changed
from palestra.worlds.web.front import Pass
from palestra.worlds.web.sites.calling import Response
from palestra.worlds.web.sites.page import settle
from palestra.worlds.web.snapshot import Element, Ids, cleaned, in_window, read_snapshot

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["EMPTY", "LINES_PER_PART", "Tab", "Tabs", "View"]

EMPTY = "about:blank"
LINES_PER_PART = 200
"""A longer page is shown in parts of this number of elements."""
MOST_TABS = 8
_LONGEST_TITLE = 100
_ARRIVAL_SECONDS = 3.0
"""A window that a page reports and that does not open within this time was open already."""


class View(NamedTuple):
    """How pages are read."""

    picture: bool = False
    """Whether an observation has a screenshot, and elements their places on it."""
    window: bool = False
    """Whether elements outside of the window are left out."""


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
        self.title = ""
        """The title of the page when the agent saw it last. A busy page in the background cannot delay an observation."""
        self.picture = b""
        """The screenshot that belongs to ``elements``, if there is one."""
        self.source: tuple[str, Response] | None = None
        """The address of the document, and the bytes that a site answered. A copy of the episode shows them again."""
        self.part = 0
        self.changed = ""
        """What the last action has changed; empty if the agent sees the tab for the first time."""
        self._documents = 0
        self._seen: int | None = None
        """The document that the agent has seen. ids count from 1 in each. No script of a page can change these numbers."""
        page.on("domcontentloaded", self._new_document)

    def _new_document(self, _: "Page") -> None:
        self._documents += 1

    def stop(self) -> None:
        """Follow the page no longer."""
        self.page.remove_listener("domcontentloaded", self._new_document)

    @property
    def seen(self) -> bool:
        """Whether the agent has seen the tab."""
        return self._seen is not None

    def adopt(self, other: "Tab") -> None:
        """Take over what the agent knows of ``other``, of whose page this tab shows a copy."""
        self.back, self.forward, self.part = list(other.back), list(other.forward), other.part
        self.ids, self.elements, self.changed = other.ids, other.elements, other.changed
        self.title, self.picture, self.source = other.title, other.picture, other.source

    async def look(self, view: View) -> bool:
        """Read the page, and return whether it is a new document."""
        # The number is taken before the next wait: a document that arrives in the meantime is not the one that was read.
        elements, document = await self.read(view), self._documents
        self.title = " ".join(cleaned(await self.page.title()).split())[:_LONGEST_TITLE]
        self.picture = await self.page.screenshot(type="png") if view.picture else b""
        is_new = self._seen != document
        if is_new:
            self.changed = "a new page" if self.seen else ""
            self._seen, self.ids, self.part = document, Ids(), 0
            self.elements = self.ids.name(elements)
        else:
            named = self.ids.name(elements)
            self.changed = changed(self.elements, named)
            self.elements = named
        self.turn_to(self.part)
        return is_new

    async def look_again(self, original: Sequence[Element], view: View, *, seen: bool) -> None:
        """Make sure that this copy of a page looks as the original does. ``seen`` is whether the agent has seen that one."""
        elements = await self.read(view)
        if [*map(_looks, elements)] != [*map(_looks, original)]:
            raise Unsupported("the page holds a state of its own, in scripts or in a frame, which cannot be copied")
        if seen:
            self._seen, self.ids = self._documents, self.ids.copied(original, elements)

    async def read(self, view: View) -> list[Element]:
        """Return the elements of the page with the browser's own ids."""
        text = await self.page.locator("body").aria_snapshot(mode="ai", boxes=(view.picture or view.window) or None)
        elements = read_snapshot(text)
        size = self.page.viewport_size
        return in_window(elements, size["width"], size["height"]) if view.window and size is not None else elements

    @property
    def parts(self) -> int:
        """The number of parts in which the page is shown."""
        return max(1, -(-len(self.elements) // LINES_PER_PART))

    def turn_to(self, part: int) -> None:
        """Show another part of the page."""
        self.part = max(0, min(part, self.parts - 1))

    def turned(self, step: int) -> bool:
        """Show the part after this one or before it. Return whether there is one."""
        before = self.part
        self.turn_to(before + step)
        return self.part != before

    @property
    def shown(self) -> Sequence[Element]:
        """The elements of the part that the agent sees."""
        return self.elements[self.part * LINES_PER_PART : (self.part + 1) * LINES_PER_PART]


def _looks(element: Element) -> Element:
    return element._replace(ref="", box=None)


class Tabs:
    """The tabs of one context, in the order in which they were opened."""

    def __init__(self, context: "BrowserContext", page: "Page") -> None:
        self._context = context
        self.all: list[Tab] = []
        self.problem = ""
        """Why the last window of a page is no tab."""
        self._expected = self._arrived = 0
        self._waiting: list[Page] = []
        """Windows that pages have opened since the tabs stood still."""
        self._closing: set[asyncio.Task[None]] = set()
        self.front = self._keep(page)
        """The tab that the agent sees."""
        context.on("page", self._opened)

    def stop(self) -> None:
        """Follow the windows of the context no longer."""
        self._context.remove_listener("page", self._opened)
        for tab in self.all:
            tab.stop()

    def _keep(self, page: "Page") -> Tab:
        tab = Tab(page)
        self.all.append(tab)
        return tab

    def _opened(self, page: "Page") -> None:
        self._arrived += 1
        if len(self.all) + len(self._waiting) < MOST_TABS:
            self._waiting.append(page)
            return
        self.problem = f"A window was not opened: there are {MOST_TABS} tabs."
        task = asyncio.ensure_future(_quietly_closed(page))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _followed(self) -> Tab:
        """Take up the windows that have been opened, leave those that have been closed, and return the tab in front."""
        while True:
            for page in self._waiting:
                self.front = self._keep(page)
            self._waiting.clear()
            for tab in [tab for tab in self.all if tab.page.is_closed()]:
                self._leave(tab)
            if self.all:
                return self.front
            self._expected += 1
            await self._context.new_page()  # the only page has closed its tab
            await self._arrivals()

    def _leave(self, tab: Tab) -> None:
        number = self.all.index(tab)
        self.all.remove(tab)
        tab.stop()
        if self.front is tab and self.all:
            self.front = self.all[max(0, number - 1)]

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

    @contextmanager
    def surviving(self) -> Iterator[Tab]:
        """Yield the tab in front. If its page closes the tab in the meantime, the block ends there, without an error."""
        from playwright.async_api import Error

        tab = self.front
        try:
            yield tab
        except Error:
            browser = self._context.browser
            if not tab.page.is_closed() or browser is None or not browser.is_connected():
                raise

    async def settle(self, access: Pass) -> None:
        """Wait until the tab in front stands still, and every window that it opens."""
        while True:
            front = await self._followed()
            with self.surviving() as tab:
                self._expected += await settle(tab.page, access)
            await self._arrivals()
            if await self._followed() is front:
                return

    async def _arrivals(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _ARRIVAL_SECONDS
        while self._arrived < self._expected and loop.time() < end:  # noqa: ASYNC110 - a short wait with a deadline
            await asyncio.sleep(0.005)
        self._expected = self._arrived

    # ---------------------------------------------------------------------------------------------------------- observation

    def lines(self, shown: Tab) -> list[str]:
        """Return one line for each tab if there are several. The title of a page is quoted like all its texts."""
        if len(self.all) == 1:
            return []
        return [
            f"Tab {number}{' (shown)' if tab is shown else ''}: {json.dumps(tab.title, ensure_ascii=False)} "
            f"at {cleaned(tab.page.url)}"
            for number, tab in enumerate(self.all)
        ]


async def _quietly_closed(page: "Page") -> None:
    from playwright.async_api import Error

    try:
        await page.close()
    except Error:
        return
