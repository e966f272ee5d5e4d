"""A task on sites of its own: an errand in a browser context that reaches these sites and nothing else.

Each episode has a fork of every site with a database of its own. The episode ends with the action ``stop``. Then the databases
are compared with those of the beginning. The reward is 1 if the answer is right and exactly the wanted changes were made, -1
if something else was changed, and 0 otherwise.
"""

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palestra.core import AsyncEnv, Step
from palestra.errors import InfrastructureError, Unsupported, UsageError
from palestra.foundation.references import resolve
from palestra.foundation.seeding import derive, derive_seed
from palestra.trajectory import Content, Image, Task, Text
from palestra.worlds.web.acting import acted_on, advance, perform
from palestra.worlds.web.actions import Action, described, read_action
from palestra.worlds.web.browsers import Browsers, Seat, answered, shared_browsers
from palestra.worlds.web.front import Pass
from palestra.worlds.web.marks import check_picture, marked
from palestra.worlds.web.sites.boxes import Box, Boxes, shared_boxes
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.copying import Written, show_copy, written
from palestra.worlds.web.sites.errands import Errand, NotShown, Seen, Town, Walk
from palestra.worlds.web.sites.judging import judged
from palestra.worlds.web.sites.page import leaving_script, open_page
from palestra.worlds.web.sites.state import Row, changes_between, rows_of
from palestra.worlds.web.sites.tabs import Tab, Tabs
from palestra.worlds.web.sites.visit import Sites
from palestra.worlds.web.snapshot import element_lines

__all__ = ["Errands"]

_ACTIONS = (
    *("click", "double_click", "type", "select", "press", "hover", "drag", "scroll", "wait"),
    *("goto", "go_back", "go_forward", "new_tab", "tab_focus", "close_tab", "stop"),
)
_HOW = (
    "You use web sites in a browser. Each line below is an element of the page with its id. Write one action as the last line "
    "of your message, for example: click [e5]\n{actions}\nThe sites are {hosts}. You have {turns} actions. {care} "
    "End with stop."
)
EPISODES_PER_CONTEXT = 50


class Errands(AsyncEnv):
    """Errands on sites.

    Args:
        town: A ``Town``, or its ``module:name``: the sites and their tasks.
        level: A level of the town.
        template: One template of the town, instead of a level.
        max_turns: The turn limit.
        picture: Whether the observation has a screenshot beside the elements; ``"marks"`` draws the ids of elements on it.
        view: ``"page"`` shows the elements of the whole page, ``"window"`` those in the window, which ``scroll`` moves.
    """

    reward_range = (-1.0, 1.0)
    score_range = (-1.0, 1.0)
    reusable = True
    counts_turns = True
    care = "Do what the task asks and nothing else: other changes cost."
    """The sentence of the first observation about changes that the task does not ask for."""
    max_turns: int

    def __init__(
        self,
        town: str | Town,
        level: str = "easy",
        max_turns: int = 30,
        *,
        template: str = "",
        picture: bool | str = False,
        view: str = "page",
    ) -> None:
        self._town: Town = resolve(town) if isinstance(town, str) else town
        if not template and level not in self._town.levels:
            raise UsageError(f"{town} has no level {level!r}: write one of {', '.join(self._town.levels)}")
        known = {name for names in self._town.levels.values() for name in names}
        if template and template not in known:
            raise UsageError(f"{town} has no template {template!r}: write one of {', '.join(sorted(known))}")
        check_picture(picture)
        if view not in ("page", "window"):
            raise UsageError(f'view is "page" or "window", got {view!r}')
        self._templates = (template,) if template else self._town.levels[level]
        self.max_turns = max_turns
        self._picture = picture
        self._window = view == "window"
        self._stack = AsyncExitStack()
        self._browsers: Browsers | None = None
        self._warm: dict[Site, Boxes] = {}
        self._sites: Sites | None = None
        self._pass: Pass | None = None
        self._seat: Seat | None = None
        self._tabs: Tabs | None = None
        self._episodes = 0

    # ------------------------------------------------------------------------------------------------------------ episode

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        if not await self._cleaned():
            await self._leave()
        own = derive_seed(self.task.seed, "errand", self.task.key, self.task.split)
        self.errand, world = await self._drawn(own)
        self._turn = 0
        self._seen: list[Seen] = []
        self._acted: list[str] = []
        await self._enter()
        self._sites = self._new_sites()
        for site in self._used():
            self._sites.boxes[site.host] = await self._warm[site].open(world, self.errand.options.get(site.host))
        self._before = self._rows()
        await self._open_context(self._first_storage())
        await self._open_first()
        tab = await self._look()
        self._keep(tab)
        turns = self.max_turns
        how = _HOW.format(actions=described(_ACTIONS), hosts=self._addresses(), turns=turns, care=self.care)
        return self._shown(tab, f"{how}\n\n{self._head(tab)}"), {"max_turns": turns, "template": self.errand.template}

    async def _drawn(self, own: int) -> tuple[Errand, int]:
        """Return the task of an episode, and the seed of its sites."""
        template = self._templates[int(derive(own, "template").integers(len(self._templates)))]
        return self._town.errand(own, template), own

    def _new_sites(self) -> Sites:
        return Sites({})

    def _first_storage(self) -> Any:
        """Return what the browser has stored when the episode begins."""
        return {"cookies": _cookies(self.errand), "origins": []}

    async def _open_first(self) -> None:
        async with answered():
            await self._open(self.errand.start)

    def _addresses(self) -> str:
        assert self._sites is not None
        return ", ".join(f"http://{host}/" for host in self._sites.hosts)

    def _used(self) -> list[Site]:
        """Return the sites that the task needs."""
        return [site for site in self._town.sites if not self.errand.hosts or site.host in self.errand.hosts]

    async def _enter(self) -> None:
        """Use the browsers and the warm processes that all episodes of this event loop share."""
        if self._browsers is None:
            self._browsers = await self._stack.enter_async_context(shared_browsers())
        for site in self._used():
            if site not in self._warm:
                self._warm[site] = await self._stack.enter_async_context(shared_boxes(site))

    async def _cleaned(self) -> bool:
        """End the episode, but keep its context for the next one. Return false if the context cannot be kept.

        Pages without scripts do nothing of their own, so nothing of them can reach into the next episode.
        """
        if self._seat is None or self._tabs is None or self._sites is None or self._pass is None or not self._seat.alive:
            return False
        if not self._tabs.all:
            return False
        self._tabs.front = self._tabs.all[0]
        used = [box.site for box in self._sites.boxes.values()]
        self._episodes += 1
        if any(site.scripts for site in used) or self._episodes >= EPISODES_PER_CONTEXT:
            return False
        if not await self._seat.clean(self._tab.page, [f"http://{site.host}" for site in used]) or self._pass.under_way:
            return False
        self._sites.close()
        return True

    async def _open_context(self, storage: Any) -> None:
        assert self._browsers is not None
        assert self._sites is not None
        if self._seat is not None and self._pass is not None:
            self._pass.serve(self._sites)
            async with answered():
                await self._seat.context.add_cookies(storage["cookies"])
            self._see_only(self._tab.page)
            return
        self._episodes = 0
        self._pass = self._browsers.front.admit(self._sites)
        self._seat = await self._browsers.open({"proxy": self._pass.proxy(), "storage_state": storage})
        async with answered():
            await self._seat.context.add_init_script(leaving_script())
            self._see_only(await self._seat.context.new_page())

    def _see_only(self, page: Any) -> None:
        """Begin with one tab."""
        assert self._seat is not None
        if self._tabs is not None:
            self._tabs.stop()
        self._tabs = Tabs(self._seat.context, page)

    def _rows(self) -> dict[str, dict[str, Counter[Row]]]:
        assert self._sites is not None
        views = self._town.views
        return {host: rows_of(self.database(host), views[host]) for host in self._sites.boxes if views.get(host)}

    def database(self, host: str) -> Path:
        """Return the path of the database of a site of this episode."""
        assert self._sites is not None
        box: Box = self._sites.boxes[host]
        return box.folder / box.site.database

    # --------------------------------------------------------------------------------------------------------- observation

    @property
    def _tab(self) -> Tab:
        """The tab that the agent sees."""
        assert self._tabs is not None
        return self._tabs.front

    @property
    def _view(self) -> dict[str, bool]:
        """How a page is read."""
        return {"boxes": bool(self._picture), "window": self._window}

    async def _look(self) -> Tab:
        """Read the page of the tab in front, and return the tab. A tab that closes in the meantime is not read."""
        assert self._tabs is not None
        assert self._pass is not None
        async with answered():
            while (tab := await self._tabs.surviving(self._read, None)) is None:
                await self._tabs.settle(self._pass)
        return tab

    async def _read(self, tab: Tab) -> Tab:
        assert self._sites is not None
        if await tab.look(**self._view, picture=bool(self._picture)):
            tab.source = self._sites.source(tab.page.url)
        return tab

    def _keep(self, tab: Tab) -> None:
        """Note what the agent sees now."""
        self._seen.append(Seen(tab.page.url, tab.shown, tab.part + 1 < tab.parts))

    def _head(self, tab: Tab) -> str:
        assert self._tabs is not None
        lines = [f"Task: {self.errand.goal}", f"Address: {self._seen[-1].address}", *self._tabs.lines(tab)]
        if tab.changed:
            lines.append(f"Changed: {tab.changed}")
        if tab.parts > 1:
            lines.append(f"Part {tab.part + 1} of {tab.parts} of the page: scroll to see the others.")
        return "\n".join(lines)

    def _shown(self, tab: Tab, before: str) -> Content:
        text = "\n".join((before, *element_lines(self._seen[-1].elements)))
        if not self._picture:
            return text
        return (Text(text), Image(marked(tab.picture, tab.shown) if self._picture == "marks" else tab.picture))

    # -------------------------------------------------------------------------------------------------------------- actions

    async def step(self, action: str) -> Step:
        self._turn += 1
        self._acted.append(action)
        order = read_action(action, _ACTIONS)
        if order.name == "stop":
            return await self._graded(order.arguments.get("answer", ""), stopped=True)
        info: dict[str, Any] = {"format_error": True} if order.problem else acted_on(order, self._tab.elements)
        problem = order.problem or await self._do(order)
        if self._turn >= self.max_turns:
            step = await self._graded("", stopped=False)
            return step._replace(info={**step.info, **info})
        tab = self._tab
        return Step(self._shown(tab, f"{problem}\n{self._head(tab)}".lstrip()), 0.0, False, False, info)

    async def _do(self, order: Action) -> str:
        """Perform an action and read the page. Return why it was not possible, or an empty string."""
        assert self._tabs is not None
        tab, tabs = self._tab, self._tabs
        down = order.arguments.get("direction") == "down"
        if order.name == "scroll" and tab.parts > 1 and (tab.turned(1 if down else -1) or not self._window):
            tab.changed = ""
            self._keep(tab)
            return ""
        before, tabs.problem = tab.page.url, ""
        async with answered():
            problem = await self._done(order)
        if tab.page.url != before and order.name not in ("go_back", "go_forward"):
            tab.back.append(before)
            tab.forward.clear()
        shown = await self._look()
        if (
            order.name == "scroll" and shown is tab and shown.changed != "nothing"
        ):  # another window: read it from where it joins the last one
            shown.turn_to(0 if down else shown.parts - 1)
        self._keep(shown)
        return problem or tabs.problem

    async def _done(self, order: Action) -> str:
        assert self._tabs is not None
        assert self._pass is not None
        if order.name == "goto":
            return await self._goto(order.arguments["address"])
        if order.name in ("go_back", "go_forward"):
            return await self._go(self._tab, back=order.name == "go_back")
        if order.name in _ON_TABS:
            problem = await _ON_TABS[order.name](self._tabs, order)
        else:
            problem = await self._tabs.surviving(lambda tab: perform(tab.page, order, tab.ids), "")
            await self._tabs.settle(self._pass)
            await self._tabs.surviving(lambda tab: advance(tab.page), None)
        await self._tabs.settle(self._pass)
        return problem

    async def _open(self, address: str) -> str:
        """Open an address in the tab in front. Return why that is not possible, or an empty string."""
        assert self._tabs is not None
        assert self._pass is not None
        one = self._pass
        problem = await self._tabs.surviving(lambda tab: open_page(tab.page, address, one), "")
        await self._tabs.settle(one)
        return problem

    async def _goto(self, address: str) -> str:
        assert self._sites is not None
        try:
            parsed = urlsplit(address if "://" in address else f"http://{address}")
        except ValueError:
            return "That is not an address."
        if parsed.scheme != "http" or parsed.netloc not in self._sites.hosts:
            return f"Only these sites can be opened: {self._addresses()}"
        return await self._open(parsed.geturl())

    async def _go(self, tab: Tab, *, back: bool) -> str:
        come_from, go_to = (tab.forward, tab.back) if back else (tab.back, tab.forward)
        if not go_to:
            return f"There is no page {'before' if back else 'after'} this one."
        here = tab.page.url
        problem = await self._open(go_to[-1])
        if not problem:
            come_from.append(here)
            go_to.pop()
        return problem

    # -------------------------------------------------------------------------------------------------------------- grading

    def _check_alive(self) -> None:
        assert self._sites is not None
        dead = [host for host, box in self._sites.boxes.items() if not box.alive]
        if dead:
            raise InfrastructureError(f"the site {dead[0]} has ended")

    async def _graded(self, answer: str, *, stopped: bool) -> Step:
        """End the episode: compare the databases, the answer and the address with what the task wants."""
        self._check_alive()
        after = self._rows()
        found = sum((changes_between(self._before[host], after[host]) for host in after), Counter())
        return judged(self.errand, found, answer, self._tab.page.url, stopped=stopped)

    # -------------------------------------------------------------------------------------------------------------- players

    async def oracle(self) -> str:
        walk = Walk(self._seen, self._acted)
        try:
            return self.errand.plan(walk)
        except NotShown as missing:
            if walk.here.more:
                return "scroll [down]"
            raise Unsupported(str(missing)) from None

    async def sample_random_action(self) -> str:
        """Return a click on a random link or button, a random word in a random field, or one time in twenty the end."""
        elements = [one for one in self._seen[-1].elements if one.ref and one.role in _USABLE]
        if not elements or int(self.action_rng.integers(20)) == 0:
            return "stop []"
        chosen = elements[int(self.action_rng.integers(len(elements)))]
        if chosen.role in _WRITABLE:
            return f"type [{chosen.ref}] [{int(self.action_rng.integers(100))}] [0]"
        return f"click [{chosen.ref}]"

    # ----------------------------------------------------------------------------------------------------------------- copy

    async def fork(self) -> "Errands":
        """Return a copy: databases, the memory of the sites, cookies, storage, the page and what was written into it."""
        assert self._tabs is not None
        assert self._sites is not None
        assert self._seat is not None
        async with answered():
            pages = [await written(tab, self._sites, **self._view) for tab in self._tabs.all]
            storage = await self._seat.context.storage_state()
        twin = copy.copy(self)
        twin._stack, twin._browsers, twin._warm = AsyncExitStack(), None, {}
        twin._sites, twin._pass, twin._seat, twin._tabs = Sites({}), None, None, None
        twin._seen, twin._acted = list(self._seen), list(self._acted)
        twin._action_rng = copy.deepcopy(self._action_rng)
        try:
            await twin._copied(self._sites, storage)
            for place, (tab, page) in enumerate(zip(self._tabs.all, pages, strict=True)):
                await twin._same_page(place, tab, page)
            await twin._show(self._tabs.all.index(self._tab))
        except BaseException:
            await twin.close()
            raise
        return twin

    async def _show(self, number: int) -> None:
        assert self._tabs is not None
        await self._tabs.show(number)

    async def _copied(self, sites: Sites, storage: Any) -> None:
        assert self._sites is not None
        await self._enter()
        for host, box in sites.boxes.items():
            self._sites.boxes[host] = await box.fork()
        self._sites.pages = dict(sites.pages)
        await self._open_context(storage)

    async def _same_page(self, place: int, tab: Tab, page: Written | None) -> None:
        """Show the page of a tab again, and make sure that it looks as it did."""
        assert self._pass is not None
        assert self._sites is not None
        assert self._tabs is not None
        async with answered():
            if place:
                await self._tabs.open()
                await self._tabs.settle(self._pass)
            original = await show_copy(tab, page, self._tab, self._sites, self._pass)
            await self._tab.look_again(original, seen=tab.seen, **self._view)

    # ------------------------------------------------------------------------------------------------------------------ end

    async def healthy(self) -> bool:
        return self._browsers is not None

    async def _leave(self) -> None:
        """End the episode: its context, its sites and their folders."""
        seat, self._seat = self._seat, None
        if self._tabs is not None:
            self._tabs.stop()
        self._tabs = None
        sites, self._sites = self._sites, None
        if self._pass is not None and self._browsers is not None:
            self._browsers.front.leave(self._pass)
        self._pass = None
        try:
            if seat is not None:
                await seat.close()
        finally:
            if sites is not None:
                sites.close()

    async def close(self) -> None:
        try:
            await self._leave()
        finally:
            self._browsers, self._warm = None, {}
            await self._stack.aclose()


def _cookies(errand: Errand) -> list[dict[str, str]]:
    return [{"name": name, "value": value, "domain": host, "path": "/"} for host, name, value in errand.cookies]


_WRITABLE = frozenset({"textbox", "searchbox", "spinbutton"})
_USABLE = _WRITABLE | {"link", "button", "checkbox", "radio"}


_ON_TABS: Mapping[str, Callable[[Tabs, Action], Awaitable[str]]] = {
    "new_tab": lambda tabs, order: tabs.open(),
    "close_tab": lambda tabs, order: tabs.close(),
    "tab_focus": lambda tabs, order: tabs.show(int(order.arguments["tab"])),
}
