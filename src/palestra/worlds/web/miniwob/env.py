"""One task of MiniWoB++ in the shared browser.

The page's own clock and random numbers are set by the seed, so the same task and actions give the same episode. The reward is
MiniWoB's raw reward, without its discount for time: 1 for a solved task, for some tasks a part of 1, and -1 for a wrong end.
Any reward above 0 is a success, as in the literature. An episode that reaches the turn limit has the reward 0.
"""

import math
from contextlib import AsyncExitStack
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from palestra.core import AsyncEnv, Step
from palestra.errors import Unsupported, UsageError
from palestra.foundation.seeding import derive_seed
from palestra.trajectory import Content, Image, StopReason, Task, Text
from palestra.worlds.web.acting import MILLISECONDS_PER_ACTION, acted_on, perform
from palestra.worlds.web.actions import described, read_action
from palestra.worlds.web.browsers import Browsers, Seat, answered, shared_browsers
from palestra.worlds.web.front import Pass
from palestra.worlds.web.marks import check_picture, marked
from palestra.worlds.web.miniwob.floors import floor_of
from palestra.worlds.web.miniwob.pages import TASK_AREA, WINDOW, Pages, page_address
from palestra.worlds.web.miniwob.solving import SOLVERS
from palestra.worlds.web.miniwob.tasks import TASKS
from palestra.worlds.web.miniwob.view import View
from palestra.worlds.web.snapshot import Element, Ids, cleaned, element_lines, read_snapshot

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["MiniWob"]

_BY_ELEMENT = ("click", "double_click", "type", "select", "press", "hover", "drag", "scroll", "wait")
_BY_POINT = ("click_at", "drag_at")
_HOW = (
    "You use a page in a browser. Each line below is an element with its id. Write one action as the last line of your "
    "message, for example: click [e5]\n{actions}\nYou have {turns} actions."
)
_BEGIN = """seed => {
  const style = document.createElement("style");
  style.textContent = "#reward-display, #click-canvas { display: none !important }";
  document.head.append(style);
  Math.seedrandom(String(seed));
  core.EPISODE_MAX_TIME = 1e9;
  core.startEpisodeReal();
}"""
_LOOK = """async milliseconds => {{
  if (milliseconds) await window.__palestraAdvance(milliseconds);
  for (const picture of document.images) if (!picture.complete) await picture.decode().catch(() => 0);
  {names}
  return [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL, core.getUtterance()];
}}"""
"""All that a step asks the page, in one call: each call costs about a millisecond in three processes."""


class _Window(NamedTuple):
    """A browser context, which plays one episode after another, and its only page."""

    seat: Seat
    access: Pass
    page: "Page"


class MiniWob(AsyncEnv):
    """A task of MiniWoB++.

    Args:
        name: The name of the task, such as ``click-test-2``.
        max_turns: The turn limit.
        picture: Whether the observation has a screenshot beside the elements; ``"marks"`` draws the ids of elements on it.
        penalty: Whether a wrong end has the reward -1. Without it, it has 0, like an episode that reaches the turn limit.
    """

    reward_range = (-1.0, 1.0)
    score_range = (-1.0, 1.0)
    reusable = True
    counts_turns = True
    max_turns: int

    def __init__(self, name: str, max_turns: int = 15, *, picture: bool | str = False, penalty: bool = True) -> None:
        if name not in TASKS:
            raise UsageError(f"MiniWoB++ has no task {name!r}: see palestra list web:miniwob-")
        check_picture(picture)
        self._name = name
        self.max_turns = max_turns
        self._picture = picture
        self._least = -1.0 if penalty else 0.0
        self._by_point = TASKS[name].by_point
        self._actions = (*_BY_ELEMENT, *_BY_POINT) if self._by_point else _BY_ELEMENT
        self._stack = AsyncExitStack()
        self._browsers: Browsers | None = None
        self._window: _Window | None = None

    @property
    def floor(self) -> float:
        floor = floor_of(self._name)
        return floor.with_penalty if self._least < 0 else floor.without_penalty

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._begin(seed, task)
        self._turn = 0
        self._done = False
        self._ids = Ids()
        self._pages: list[list[Element]] = []
        if self._window is None or not self._window.seat.alive:
            await self._leave()
            self._window = await self._opened()
        async with answered():
            await self._page.goto(page_address(self._name))
            await self._page.evaluate(_BEGIN, derive_seed(self.task.seed, "miniwob", self.task.key) % 2**31)
        await self._look(1000)
        how = _HOW.format(actions=described(self._actions), turns=self.max_turns)
        return await self._shown(f"{how}\n\nTask: {self.goal}"), {"max_turns": self.max_turns, "goal": self.goal}

    @property
    def _page(self) -> "Page":
        assert self._window is not None, "there is no episode: call reset() first"
        return self._window.page

    async def _opened(self) -> _Window:
        if self._browsers is None:
            self._browsers = await self._stack.enter_async_context(shared_browsers())
        access = self._browsers.front.admit(Pages())
        async with AsyncExitStack() as opened:
            opened.callback(self._browsers.front.leave, access)
            seat = await self._browsers.open({"viewport": WINDOW, "proxy": access.proxy()})
            opened.push_async_callback(seat.close)
            async with answered():
                page = await seat.context.new_page()
            opened.pop_all()
        return _Window(seat, access, page)

    async def _look(self, milliseconds: int) -> None:
        """Let time pass, and read the page: its elements, the task in words, and whether it has ended."""
        async with answered():
            self._done, raw, goal = await self._page.evaluate(_look_script(), milliseconds)
            text = await self._page.locator("body").aria_snapshot(
                mode="ai", boxes=bool(self._by_point or self._picture) or None
            )
        self._reward = max(self._least, _in_range(raw))
        self.goal = cleaned(goal["utterance"] if isinstance(goal, dict) else goal)
        seen = [element for element in read_snapshot(text) if self.goal not in (element.value, element.name)]
        self._pages.append(self._ids.name(seen))

    async def _shown(self, before: str) -> Content:
        text = "\n".join((before, *element_lines(self._pages[-1], places=self._by_point)))
        if not self._picture:
            return text
        async with answered():
            picture = await self._page.screenshot(type="png")
        return (Text(text), Image(marked(picture, self._pages[-1]) if self._picture == "marks" else picture))

    async def step(self, action: str) -> Step:
        self._turn += 1
        order = read_action(action, self._actions)
        problem = order.problem
        info: dict[str, Any] = {"format_error": True} if problem else acted_on(order, self._pages[-1])
        if not problem:
            async with answered():
                problem = await perform(self._page, order, self._ids)
        await self._look(0 if order.problem else MILLISECONDS_PER_ACTION)
        if self._done:
            return Step("The task has ended.", self._reward, True, False, {**info, "success": self._reward > 0})
        if self._turn >= self.max_turns:
            ended = {**info, "success": False, "stop_reason": StopReason.TURN_LIMIT}
            return Step("You have used all actions.", 0.0, False, True, ended)
        return Step(await self._shown(f"{problem}\nTask: {self.goal}".lstrip()), 0.0, False, False, info)

    async def oracle(self) -> str:
        solver = SOLVERS.get(self._name)
        if solver is None:
            raise Unsupported(f"web:miniwob-{self._name} has no oracle")
        return solver(View(self.goal, self._pages))

    async def sample_random_action(self) -> str:
        """Return a click on a random element, or a random number typed into a random field.

        In a task that needs points, every other action is a click at a random point.
        """
        if self._by_point and self.action_rng.random() < 0.5:
            x, y = (int(self.action_rng.integers(size)) for size in TASK_AREA)
            return f"click_at [{x}] [{y}]"
        elements = [element for element in self._pages[-1] if element.ref]
        if not elements:
            return "wait"
        chosen = elements[int(self.action_rng.integers(len(elements)))]
        if chosen.role in ("textbox", "searchbox", "spinbutton"):
            return f"type [{chosen.ref}] [{int(self.action_rng.integers(100))}]"
        return f"click [{chosen.ref}]"

    async def healthy(self) -> bool:
        return self._window is not None and self._window.seat.alive

    async def _leave(self) -> None:
        window, self._window = self._window, None
        if window is not None and self._browsers is not None:
            self._browsers.front.leave(window.access)
            await window.seat.close()

    async def close(self) -> None:
        try:
            await self._leave()
        finally:
            self._browsers = None
            await self._stack.aclose()


def _in_range(raw: object) -> float:
    """Return the page's reward as a number from -1 to 1. Some pages compute NaN from a wrong answer: that is a wrong end."""
    reward = float(raw) if isinstance(raw, int | float) else 0.0
    return -1.0 if math.isnan(reward) else max(-1.0, min(1.0, reward))


@cache
def _look_script() -> str:
    return _LOOK.format(names=(files("palestra.worlds.web.miniwob") / "page_names.js").read_text())
