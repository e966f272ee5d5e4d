"""The oracle: the plan of minigrid's bot, in macro actions.

The bot names primitive actions. A ``Guide`` plays it to the end on a copy of the world, which gives a plan: the place of the
agent after every action, and the deeds on the way (picking up, dropping, toggling, and reaching what the mission names). A
macro action may replace any part of the plan that does the same deeds and ends at a place of the plan. The oracle takes the
one that leads furthest. The bot then sees every primitive action that the agent takes, so it also helps an agent that made
mistakes.
"""

import copy
from typing import Any, NamedTuple

from palestra.worlds.babyai.actions import Moves
from palestra.worlds.babyai.sight import AHEAD, Cell, Place
from palestra.worlds.babyai.world import FORWARD, LEFT, RIGHT, World

__all__ = ["Guide", "Plan", "furthest"]

_WALKING = (LEFT, RIGHT, FORWARD)


class Plan(NamedTuple):
    """The rest of an episode as the bot plays it. ``places`` and ``deeds`` have one entry more than ``actions``."""

    actions: list[int]
    places: list[Place]
    deeds: list[int]
    """The number of deeds before each action."""

    def deed_after(self, index: int) -> int:
        """Return the index of the first action from ``index`` on that is a deed; the last action if none is."""
        while index < len(self.actions) - 1 and self.deeds[index + 1] == self.deeds[index]:
            index += 1
        return index


class Guide:
    """A bot that watches an episode and says what to do next."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bot: Any = None
        self._plan: Plan | None = None
        self._index = 0
        self._next = 0
        self._deeds = 0
        """How many actions of the agent could change the world: all but walking."""
        self._hopeless: set[tuple[Any, ...]] = set()
        """States from which no bot finishes. A search from one of them would fail again, and takes seconds."""

    def saw(self, primitive: int) -> None:
        """Tell the bot which primitive action the agent took."""
        self._deeds += primitive not in _WALKING
        if self._bot is None:
            return
        try:
            self._next = self._bot.replan(primitive)
        except _BOT_ERRORS:
            self._bot = None  # The next question starts a new bot, which knows nothing of the past.

    def primitive(self) -> int | None:
        """Return the primitive action that the bot would take now, or ``None`` if it finds no plan."""
        if self._bot is None:
            self._start()
        return None if self._bot is None else self._next

    def macro(self, moves: Moves) -> str | None:
        """Return the action among ``moves`` that leads furthest along the plan, or ``None`` if the bot finds no plan."""
        if self._bot is None:
            self._start()
        elif self._plan is None or self._plan.places[self._index] != self._world.place:
            self._plan, self._index = _played(self._world, self._bot, self._next), 0
        if self._plan is None:
            return None
        best, furthest_index = None, self._index
        for name, primitives in moves.items():
            index = furthest(self._plan, self._index, primitives)
            if index > furthest_index:
                best, furthest_index = name, index
        self._index = furthest_index
        return best

    def _start(self) -> None:
        """Start the first bot that can play from here to the end of the mission."""
        from palestra.worlds.babyai.bots import GuardedBot, KnowingBot, OpeningBot

        self._plan, self._index = None, 0
        state = (self._world.place, self._deeds, _progress(self._world.grid_env.instrs))
        if state in self._hopeless:
            return
        for kind in (KnowingBot, GuardedBot, OpeningBot):
            try:
                bot: Any = kind(self._world.grid_env)
                first = bot.replan()
            except _BOT_ERRORS:
                continue
            plan = _played(self._world, bot, first)
            if plan is not None:
                self._bot, self._next, self._plan = bot, first, plan
                return
        self._hopeless.add(state)


_BOT_ERRORS = (AssertionError, IndexError, TypeError, ValueError, AttributeError)
"""What the bot raises when it cannot help: it asserts what it hopes for."""


def _played(world: World, bot: Any, action: int) -> Plan | None:
    """Return the plan of ``bot``, whose next action is ``action``; ``None`` if it does not solve the mission."""
    world, bot = copy.deepcopy((world, bot))
    env = world.grid_env
    plan = Plan([], [world.place], [0])
    progress = _progress(env.instrs)
    seen: set[tuple[Any, ...]] = set()
    while True:
        # Walking does not change the world, so a bot that comes back to an earlier state would walk in a circle for ever.
        state = (world.place, plan.deeds[-1], action, *bot.mind())
        if state in seen:
            return None
        seen.add(state)
        outcome = world.act(action)
        now = _progress(env.instrs)
        plan.actions.append(action)
        plan.places.append(world.place)
        plan.deeds.append(plan.deeds[-1] + (action not in _WALKING or now != progress))
        progress = now
        if outcome.over:
            return plan if outcome.terminated and outcome.reward > 0 else None
        try:
            action = bot.replan(action)
        except _BOT_ERRORS:
            return None


def _progress(mission: Any) -> tuple[Any, ...]:
    """Return which parts of a mission are done."""
    if not hasattr(mission, "instr_a"):
        return ()
    parts = (mission.a_done == "success", mission.b_done == "success")
    return (*parts, *_progress(mission.instr_a), *_progress(mission.instr_b))


def furthest(plan: Plan, index: int, primitives: list[int]) -> int:
    """Return how far ``primitives`` lead along ``plan`` from ``index``, as an index; -1 if they leave the plan."""
    place = plan.places[index]
    for primitive in primitives:
        if primitive in _WALKING:
            place = _moved(place, primitive)
            continue
        deed = plan.deed_after(index)
        if plan.actions[deed] != primitive or _front(plan.places[deed]) != _front(place):
            return -1
        index = deed + 1
        if index == len(plan.actions):
            return index
    return _furthest_at(plan, index, place)


def _furthest_at(plan: Plan, index: int, place: Place) -> int:
    """Return the last index before the next deed at which the agent is at ``place``; -1 if there is none.

    If the next deed is to reach something, it counts if the agent faces the same cell, maybe from another side.
    """
    deed = plan.deed_after(index)
    if plan.actions[deed] in _WALKING and _front(plan.places[deed + 1]) == _front(place):
        return deed + 1
    return next((there for there in range(deed, index - 1, -1) if plan.places[there] == place), -1)


def _moved(place: Place, primitive: int) -> Place:
    x, y, direction = place
    if primitive == FORWARD:
        return (*_front(place), direction)
    return x, y, (direction + (1 if primitive == RIGHT else -1)) % 4


def _front(place: Place) -> Cell:
    x, y, direction = place
    return x + AHEAD[direction][0], y + AHEAD[direction][1]
