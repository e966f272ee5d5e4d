"""Rooms, their content and a goal, drawn from a generator.

Every scene is solvable and not solved at the start. The other things of the room are distractors. On the hard level a room is
larger, some doors stand open, and for tasks with a treatment an untreated thing may already lie in the target.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from palestra.worlds.house.catalog import FITS, LAMPS, PLACES, ROOMS, THINGS, ThingKind
from palestra.worlds.house.goals import TREATMENTS, Goal
from palestra.worlds.house.world import House, Place, Scene, Thing

__all__ = ["Size", "draw_episode"]

Item = TypeVar("Item")

_ROOMS_OF = {
    "pick": ("kitchen", "living room", "bedroom", "bathroom"),
    "look": ("living room", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "two": ("kitchen", "living room", "bedroom", "bathroom"),
}
"""A task type → the rooms that have what it needs."""


class Size(NamedTuple):
    """How large a scene is."""

    share: float
    """How far the number of places of a kind may go from its fewest (0) to its most (1)."""
    kinds: int
    """Kinds of distractors."""
    copies: int
    """Most things of one kind."""
    open_doors: float
    """Probability that a door stands open at the start."""
    in_target: bool
    """An untreated thing of the wanted kind may lie in the target at the start."""


class _Draw:
    """A generator with the two draws that a scene needs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.chance = rng.random

    def below(self, bound: int) -> int:
        return int(self.chance() * bound)

    def one(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]


def draw_episode(rng: np.random.Generator, task: str, size: Size) -> tuple[House, Goal]:
    """Return the start of an episode of the type ``task``, and its goal."""
    draw = _Draw(rng)
    room = draw.one(_ROOMS_OF[task])
    places = _draw_places(draw, room, size)
    present = {place.kind for place in places}
    kinds = {name: kind for name, kind in THINGS.items() if room in kind.rooms and not kind.places.isdisjoint(present)}
    goal = _draw_goal(draw, task, kinds, present)
    things, wanted = _draw_things(draw, goal, kinds, size)
    where = [_draw_place(draw, thing, places, goal if index < wanted else None, size) for index, thing in enumerate(things)]
    shown = _shuffled(draw, range(len(things)))
    numbers: Counter[str] = Counter()
    named = [_numbered(things[index], numbers) for index in shown]
    opened = {index for index, place in enumerate(places) if place.openable and draw.chance() < size.open_doors}
    return House(Scene(room, places, named, FITS), [where[index] for index in shown], opened), goal


def _draw_places(draw: _Draw, room: str, size: Size) -> list[Place]:
    places: list[Place] = []
    for kind, (fewest, highest) in ROOMS[room].items():
        most = fewest + round((highest - fewest) * size.share)
        for number in range(1, fewest + draw.below(most - fewest + 1) + 1):
            places.append(Place(f"{kind} {number}", kind, len(places), *PLACES[kind]))
    return places


def _draw_goal(draw: _Draw, task: str, kinds: dict[str, ThingKind], present: set[str]) -> Goal:
    if task == "look":
        lamps = [name for name, lamp in LAMPS.items() if not lamp.places.isdisjoint(present)]
        return Goal(task, draw.one(list(kinds)), draw.one(lamps))
    pairs = [
        (name, target)
        for name, kind in kinds.items()
        if task not in TREATMENTS or task in kind.traits
        for target in sorted(kind.places & present)
        if PLACES[target].treats != task and len(kind.places & present) > 1
    ]
    # First the target, so that places into which few kinds fit are not rare.
    target = draw.one(sorted({target for _, target in pairs}))
    return Goal(task, draw.one([name for name, there in pairs if there == target]), target)


def _draw_things(draw: _Draw, goal: Goal, kinds: dict[str, ThingKind], size: Size) -> tuple[list[Thing], int]:
    """Return all things, those of the wanted kind first, and the number of these."""
    fewest = 2 if goal.task == "two" else 1
    wanted = fewest + draw.below(max(size.copies - fewest, 0) + 1)
    things = [Thing(goal.kind, goal.kind, kinds[goal.kind].traits)] * wanted
    others = [name for name in kinds if name != goal.kind]
    for name in _shuffled(draw, others)[: size.kinds]:
        things += [Thing(name, name, kinds[name].traits)] * (1 + draw.below(size.copies))
    if goal.task == "look":
        things.append(Thing(goal.target, goal.target, LAMPS[goal.target].traits))
    return things, wanted


def _draw_place(draw: _Draw, thing: Thing, places: list[Place], goal: Goal | None, size: Size) -> int:
    """Return where ``thing`` lies; ``goal`` is given if it is of the wanted kind."""
    kind = THINGS.get(thing.kind) or LAMPS[thing.kind]
    closed_to = goal.target if goal is not None and not (size.in_target and goal.task in TREATMENTS) else ""
    return draw.one([index for index, place in enumerate(places) if place.kind in kind.places and place.kind != closed_to])


def _shuffled(draw: _Draw, items: Sequence[Item]) -> list[Item]:
    left = list(items)
    return [left.pop(draw.below(len(left))) for _ in range(len(left))]


def _numbered(thing: Thing, numbers: Counter[str]) -> Thing:
    numbers[thing.kind] += 1
    return thing._replace(name=f"{thing.kind} {numbers[thing.kind]}")
