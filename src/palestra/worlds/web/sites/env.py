"""A task on sites of its own: an errand in a browser context that reaches these sites and nothing else.

Each episode has a fork of every site with a database of its own. The episode ends with the action ``stop``. Then the databases
are compared with those of the beginning. The reward is 1 if the answer is right and exactly the wanted changes were made, -1
if something else was changed, and 0 otherwise.
"""

import copy
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from palestra.core import AsyncEnv, Step
from palestra.errors import Unsupported, UsageError
from palestra.foundation.references import resolve
from palestra.foundation.seeding import derive, derive_seed
from palestra.trajectory import Content, Image, Task, Text
from palestra.worlds.web.acting import acted_on
from palestra.worlds.web.actions import described, read_action
from palestra.worlds.web.browsers import Browsers, answered, shared_browsers
from palestra.worlds.web.marks import check_picture, marked
from palestra.worlds.web.sites.boxes import Boxes, shared_boxes
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand, NotShown, Town, Walk
from palestra.worlds.web.sites.hosts import Sites
from palestra.worlds.web.sites.judging import judged
from palestra.worlds.web.sites.state import Row, changes_between, rows_of
from palestra.worlds.web.sites.tabs import Tab, View
from palestra.worlds.web.sites.visit import Visit
from palestra.worlds.web.snapshot import element_lines

__all__ = ["Errands"]

_ACTIONS = (
    "click",
    "double_click",
    "type",
    "select",
    "press",
    "hover",
    "drag",
    "scroll",
    "wait",
    "goto",
    "go_back",
    "go_forward",
    "new_tab",
    "tab_focus",
    "close_tab",
    "stop",
)
_HOW = (
    "You use web sites in a browser. Each line below is an element of the page with its id. Write one action as the last line "
    "of your message, for example: click [e5]\n{actions}\nThe sites are {hosts}. You have {turns} actions. {care} "
    "End with stop."
)
_WRITABLE = frozenset({"textbox", "searchbox", "spinbutton"})
_USABLE = _WRITABLE | {"link", "button", "checkbox", "radio"}


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
    keeps_context = True
    """Whether the next episode may play in the same browser context, if it can be cleaned."""
    rounds = 0
    """How often half a second passes by the clock of a page after its address was opened."""
    max_turns: int
    errand: Errand
    """The task of the episode."""

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
        templates = {name for names in self._town.levels.values() for name in names}
        if template and template not in templates:
            raise UsageError(f"{town} has no template {template!r}: write one of {', '.join(sorted(templates))}")
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
        self._current: Visit | None = None

    # ------------------------------------------------------------------------------------------------------------ episode

    @property
    def _visit(self) -> Visit:
        """The episode that is played."""
        assert self._current is not None, "there is no episode: call reset() first"
        return self._current

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        if self._current is not None and not (self.keeps_context and await self._current.clean()):
            await self._leave()
        self.errand, world = await self._drawn(derive_seed(self.task.seed, "errand", self.task.key, self.task.split))
        browsers = await self._enter()
        sites, storage = self._new_sites(), self._first_storage()
        try:
            for site in self._used():
                sites.boxes[site.host] = await self._warm[site].open(world, self.errand.options.get(site.host))
            if self._current is None:
                view = View(picture=bool(self._picture), window=self._window)
                visit = await Visit.begin(sites, browsers, storage, view, self.rounds)
            else:
                visit = await self._current.again(sites, storage)
        except BaseException:
            sites.close()
            raise
        self._current = visit
        self._before = self._rows()  # no page has been opened yet
        await self._open_first()
        tab = await visit.look()
        visit.note(tab)
        how = _HOW.format(actions=described(_ACTIONS), hosts=sites.addresses, turns=self.max_turns, care=self.care)
        return self._observation(tab, f"{how}\n\n"), {"max_turns": self.max_turns, "template": self.errand.template}

    async def _drawn(self, seed: int) -> tuple[Errand, int]:
        """Return the task of an episode, and the seed of its sites."""
        template = self._templates[int(derive(seed, "template").integers(len(self._templates)))]
        return self._town.errand(seed, template), seed

    def _new_sites(self) -> Sites:
        return Sites({})

    def _first_storage(self) -> Any:
        """Return what the browser has stored when the episode begins."""
        cookies = [{"name": name, "value": value, "domain": host, "path": "/"} for host, name, value in self.errand.cookies]
        return {"cookies": cookies, "origins": []}

    async def _open_first(self) -> None:
        async with answered():
            await self._visit.open(self.errand.start)

    def _used(self) -> list[Site]:
        """Return the sites that the task needs."""
        return [site for site in self._town.sites if not self.errand.hosts or site.host in self.errand.hosts]

    async def _enter(self) -> Browsers:
        """Use the browsers and the warm processes that all episodes of this event loop share."""
        if self._browsers is None:
            self._browsers = await self._stack.enter_async_context(shared_browsers())
        for site in self._used():
            if site not in self._warm:
                self._warm[site] = await self._stack.enter_async_context(shared_boxes(site))
        return self._browsers

    def _rows(self) -> dict[str, dict[str, Counter[Row]]]:
        views = self._town.views
        return {host: rows_of(self.database(host), views[host]) for host in self._visit.sites.boxes if views.get(host)}

    def database(self, host: str) -> Path:
        """Return the path of the database of a site of this episode."""
        box = self._visit.sites.boxes[host]
        return box.folder / box.site.database

    def _observation(self, tab: Tab, before: str) -> Content:
        """Return what the agent sees: ``before``, the task, where it is, and the elements of the page."""
        visit = self._visit
        lines = [f"{before}Task: {self.errand.goal}", f"Address: {visit.seen[-1].address}", *visit.tabs.lines(tab)]
        if tab.changed:
            lines.append(f"Changed: {tab.changed}")
        if tab.parts > 1:
            lines.append(f"Part {tab.part + 1} of {tab.parts} of the page: scroll to see the others.")
        text = "\n".join((*lines, *element_lines(visit.seen[-1].elements)))
        if not self._picture:
            return text
        return (Text(text), Image(marked(tab.picture, tab.shown) if self._picture == "marks" else tab.picture))

    async def step(self, action: str) -> Step:
        visit = self._visit
        visit.actions.append(action)
        order = read_action(action, _ACTIONS)
        if order.name == "stop":
            return await self._graded(order.arguments.get("answer", ""), stopped=True)
        info: dict[str, Any] = {"format_error": True} if order.problem else acted_on(order, visit.tab.elements)
        problem = order.problem or await visit.act(order)
        if len(visit.actions) >= self.max_turns:
            step = await self._graded("", stopped=False)
            return step._replace(info={**step.info, **info})
        return Step(self._observation(visit.tab, f"{problem}\n" if problem else ""), 0.0, False, False, info)

    async def _graded(self, answer: str, *, stopped: bool) -> Step:
        """End the episode: compare the databases, the answer and the address with what the task wants."""
        self._visit.sites.require_alive()
        after = self._rows()
        changes = sum((changes_between(self._before[host], after[host]) for host in after), Counter())
        return judged(self.errand, changes, answer, self._visit.tab.page.url, stopped=stopped)

    # -------------------------------------------------------------------------------------------------------------- players

    async def oracle(self) -> str:
        walk = Walk(self._visit.seen, self._visit.actions)
        try:
            return self.errand.plan(walk)
        except NotShown as missing:
            if walk.here.more:
                return "scroll [down]"
            raise Unsupported(str(missing)) from missing

    async def sample_random_action(self) -> str:
        """Return a click on a random link or button, a random word in a random field, or one time in twenty the end."""
        elements = [element for element in self._visit.seen[-1].elements if element.ref and element.role in _USABLE]
        if not elements or int(self.action_rng.integers(20)) == 0:
            return "stop []"
        chosen = elements[int(self.action_rng.integers(len(elements)))]
        if chosen.role in _WRITABLE:
            return f"type [{chosen.ref}] [{int(self.action_rng.integers(100))}] [0]"
        return f"click [{chosen.ref}]"

    # ---------------------------------------------------------------------------------------------------------- copy and end

    async def fork(self) -> "Errands":
        """Return a copy: databases, the memory of the sites, cookies, storage, the page and what was written into it."""
        visit = self._visit
        twin = copy.copy(self)
        twin._stack, twin._browsers, twin._warm, twin._current = AsyncExitStack(), None, {}, None
        twin._action_rng = copy.deepcopy(self._action_rng)
        try:
            twin._current = await visit.copy(await twin._enter())
        except BaseException:
            await twin.close()
            raise
        return twin

    async def healthy(self) -> bool:
        return self._browsers is not None

    async def _leave(self) -> None:
        visit, self._current = self._current, None
        if visit is not None:
            await visit.leave()

    async def close(self) -> None:
        try:
            await self._leave()
        finally:
            self._browsers, self._warm = None, {}
            await self._stack.aclose()
