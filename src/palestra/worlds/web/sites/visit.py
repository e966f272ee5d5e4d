"""One episode in a browser: the sites that it reaches, its tabs, and what the agent has seen and done there.

A ``Visit`` begins with the ``reset`` of the environment and ends with the next one, or with ``close``. The browser context may
outlive it: the next visit takes it over if it could be cleaned. A copy of a visit shows the bytes that the sites answered, and
writes again what was written. No copy is trusted: it must look as the original does.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from palestra.errors import Unsupported
from palestra.worlds.web.acting import advance, perform
from palestra.worlds.web.actions import Action
from palestra.worlds.web.browsers import Browsers, Seat, answered
from palestra.worlds.web.front import Pass
from palestra.worlds.web.sites.calling import Response
from palestra.worlds.web.sites.errands import Seen
from palestra.worlds.web.sites.hosts import Sites, bare
from palestra.worlds.web.sites.page import form_state, leaving_script, open_page, put_form_state
from palestra.worlds.web.sites.tabs import EMPTY, Tab, Tabs, View
from palestra.worlds.web.snapshot import Element

__all__ = ["Visit"]

EPISODES_PER_CONTEXT = 50


class _Written(NamedTuple):
    """The page of a tab, to be shown again in a copy."""

    page: Response
    state: Any
    """What was written into its fields, and where it is scrolled to."""
    elements: list[Element]


_ON_TABS: Mapping[str, Callable[[Tabs, Action], Awaitable[str]]] = {
    "new_tab": lambda tabs, order: tabs.open(),
    "close_tab": lambda tabs, order: tabs.close(),
    "tab_focus": lambda tabs, order: tabs.show(int(order.arguments["tab"])),
}


class Visit:
    """One episode in a browser context. ``begin`` opens a context for it; ``again`` begins the next one in the same context.

    Args:
        sites: What answers the requests of the context.
        browsers: The owner of the context.
        seat: The context.
        access: The right of the context to use the proxy.
        page: The first page of the context.
        view: How pages are read.
        rounds: How often half a second passes by the clock of a page after its address was opened.
        earlier: The number of visits of this context before this one.
    """

    def __init__(
        self,
        sites: Sites,
        *,
        browsers: Browsers,
        seat: Seat,
        access: Pass,
        page: Any,
        view: View,
        rounds: int,
        earlier: int = 0,
    ) -> None:
        self.sites = sites
        self.seat = seat
        self.access = access
        self.tabs = Tabs(seat.context, page)
        self.seen: list[Seen] = []
        """The observations so far."""
        self.actions: list[str] = []
        """The agent's messages so far: one less than the observations while it is the agent's turn."""
        self._browsers = browsers
        self._view = view
        self._rounds = rounds
        self._earlier = earlier

    @classmethod
    async def begin(cls, sites: Sites, browsers: Browsers, storage: Any, view: View, rounds: int) -> "Visit":
        """Begin a visit in a new context, which has stored ``storage``, a storage state of Playwright."""
        access = browsers.front.admit(sites)
        async with AsyncExitStack() as opened:
            opened.callback(browsers.front.leave, access)
            seat = await browsers.open({"proxy": access.proxy(), "storage_state": storage})
            opened.push_async_callback(seat.close)
            async with answered():
                await seat.context.add_init_script(leaving_script())
                page = await seat.context.new_page()
            opened.pop_all()
        return cls(sites, browsers=browsers, seat=seat, access=access, page=page, view=view, rounds=rounds)

    async def clean(self) -> bool:
        """End the visit, but keep its context for the next one. Return false if the context cannot be kept.

        Pages without scripts do nothing of their own, so nothing of them can reach into the next episode.
        """
        if not self.seat.alive or not self.tabs.all:
            return False
        used = [box.site for box in self.sites.boxes.values()]
        if any(site.scripts for site in used) or self._earlier + 1 >= EPISODES_PER_CONTEXT:
            return False
        self.tabs.front = self.tabs.all[0]
        if not await self.seat.clean(self.tab.page, [f"http://{site.host}" for site in used]) or self.access.under_way:
            return False
        self.sites.close()
        return True

    async def again(self, sites: Sites, storage: Any) -> "Visit":
        """Begin the next visit in the context of this one, which is clean."""
        self.access.serve(sites)
        async with answered():
            await self.seat.context.add_cookies(storage["cookies"])
        self.tabs.stop()
        return Visit(
            sites,
            browsers=self._browsers,
            seat=self.seat,
            access=self.access,
            page=self.tab.page,
            view=self._view,
            rounds=self._rounds,
            earlier=self._earlier + 1,
        )

    async def leave(self) -> None:
        """End the visit: its context, its sites and their folders."""
        self.tabs.stop()
        self._browsers.front.leave(self.access)
        try:
            await self.seat.close()
        finally:
            self.sites.close()

    # --------------------------------------------------------------------------------------------------------- observation

    @property
    def tab(self) -> Tab:
        """The tab that the agent sees."""
        return self.tabs.front

    async def look(self) -> Tab:
        """Read the page of the tab in front, and return the tab. A tab that closes in the meantime is not read."""
        async with answered():
            while True:
                is_read = False
                with self.tabs.surviving() as tab:
                    if await tab.look(self._view):
                        tab.source = self.sites.source(tab.page.url)
                    is_read = True
                if is_read:
                    return tab
                await self.tabs.settle(self.access)

    def note(self, tab: Tab) -> None:
        """Note what the agent sees now."""
        self.seen.append(Seen(tab.page.url, tab.shown, tab.part + 1 < tab.parts))

    # -------------------------------------------------------------------------------------------------------------- actions

    async def act(self, order: Action) -> str:
        """Perform an action, and read and note the page. Return why it was not possible, or an empty string."""
        tab, tabs = self.tab, self.tabs
        down = order.arguments.get("direction") == "down"
        if order.name == "scroll" and tab.parts > 1 and (tab.turned(1 if down else -1) or not self._view.window):
            tab.changed = ""
            self.note(tab)
            return ""
        before, tabs.problem, problem = tab.page.url, "", ""
        async with answered():
            if order.name == "goto":
                problem = await self.goto(order.arguments["address"])
            elif order.name in ("go_back", "go_forward"):
                problem = await self.turn_page(back=order.name == "go_back")
            elif order.name in _ON_TABS:
                problem = await _ON_TABS[order.name](tabs, order)
                await tabs.settle(self.access)
            else:
                with tabs.surviving() as front:
                    problem = await perform(front.page, order, front.ids)
                await tabs.settle(self.access)
                with tabs.surviving() as front:
                    await advance(front.page)
                await tabs.settle(self.access)
        if tab.page.url != before and order.name not in ("go_back", "go_forward"):
            tab.back.append(before)
            tab.forward.clear()
        shown = await self.look()
        if order.name == "scroll" and shown is tab and shown.changed != "nothing":
            shown.turn_to(0 if down else shown.parts - 1)  # another window: read it from where it joins the last one
        self.note(shown)
        return problem or tabs.problem

    async def goto(self, address: str) -> str:
        """Open an address that the agent has written. Return why that is not possible, or an empty string."""
        try:
            parsed = urlsplit(address if "://" in address else f"http://{address}")
        except ValueError:
            return "That is not an address."
        if parsed.scheme != "http" or parsed.netloc not in self.sites.hosts:
            return f"Only these sites can be opened: {self.sites.addresses}"
        return await self.open(parsed.geturl())

    async def turn_page(self, *, back: bool) -> str:
        """Open the page before this one, or after it, of this tab. Return why that is not possible, or an empty string."""
        tab = self.tab
        come_from, go_to = (tab.forward, tab.back) if back else (tab.back, tab.forward)
        if not go_to:
            return f"There is no page {'before' if back else 'after'} this one."
        here = tab.page.url
        problem = await self.open(go_to[-1])
        if not problem:
            come_from.append(here)
            go_to.pop()
        return problem

    async def open(self, address: str) -> str:
        """Open an address in the tab in front. Return why that is not possible, or an empty string."""
        problem = ""
        with self.tabs.surviving() as tab:
            problem = await open_page(tab.page, address, self.access)
        await self.tabs.settle(self.access)
        for _ in range(0 if problem else self._rounds):
            with self.tabs.surviving() as tab:
                await advance(tab.page)
            await self.tabs.settle(self.access)
        return problem

    # ----------------------------------------------------------------------------------------------------------------- copy

    async def copy(self, browsers: Browsers) -> "Visit":
        """Return a copy in a context of its own: sites, cookies, storage, the pages and what was written into them."""
        async with answered():
            pages = [await self._written(tab) for tab in self.tabs.all]
            storage = await self.seat.context.storage_state()
        sites = Sites({})
        try:
            for host, box in self.sites.boxes.items():
                sites.boxes[host] = await box.fork()
            sites.pages = dict(self.sites.pages)
            twin = await Visit.begin(sites, browsers, storage, self._view, self._rounds)
        except BaseException:
            sites.close()
            raise
        try:
            twin.seen, twin.actions = list(self.seen), list(self.actions)
            for number, (tab, page) in enumerate(zip(self.tabs.all, pages, strict=True)):
                async with answered():
                    if number:
                        await twin.tabs.open()
                        await twin.tabs.settle(twin.access)
                    await twin._show_copy(tab, page)
            await twin.tabs.show(self.tabs.all.index(self.tab))
        except BaseException:
            await twin.leave()
            raise
        return twin

    async def _written(self, tab: Tab) -> _Written | None:
        """Return the page of a tab as it was answered, and what was written into it. An empty tab has none."""
        if await tab.page.opener() is not None:
            raise Unsupported("a page can steer a tab that it has opened, and this cannot be copied")
        if tab.page.url == EMPTY:
            return None
        source = tab.source if tab.seen else self.sites.source(tab.page.url)
        if source is None or source[0] != bare(tab.page.url):
            raise Unsupported("the bytes of a page are not kept: a script has made the page, or its tab was never shown")
        elements = tab.elements if tab.seen else await tab.read(self._view)
        return _Written(source[1], await form_state(tab.page), elements)

    async def _show_copy(self, original: Tab, written: _Written | None) -> None:
        """Show the page of ``original`` in the tab in front, and make sure that it looks as it did."""
        tab = self.tab
        tab.adopt(original)
        if written is not None:
            self.sites.show_again(original.page.url, written.page)
            await open_page(tab.page, original.page.url, self.access)
            await put_form_state(tab.page, written.state)
        elements = original.elements if written is None else written.elements
        await tab.look_again(elements, self._view, seen=original.seen)
