"""The six task types: when a task is solved, and the next command of a player who knows where everything is.

The six types and their conditions are ALFWorld's. The oracle follows a fixed recipe: find a thing of the right kind, treat it
if the task says so, and bring it where it belongs. It works from any state, also after mistakes, as long as the thing in its
hand fits into some place.
"""

from typing import NamedTuple

from palestra.worlds.house.world import HAND, House

__all__ = ["TASKS", "TREATMENTS", "Goal", "is_solved", "next_command"]

TASKS = ("pick", "look", "clean", "heat", "cool", "two")
"""The task types, in ALFWorld's order."""
TREATMENTS = ("clean", "heat", "cool")


class Goal(NamedTuple):
    """What the agent has to achieve."""

    task: str
    """One of ``TASKS``."""
    kind: str
    """The kind of thing to find."""
    target: str
    """The kind of place to bring it to; for ``look``, the kind of lamp."""


def is_solved(house: House, goal: Goal) -> bool:
    """Return whether ``goal`` is reached."""
    if goal.task == "look":
        return _under_the_lamp(house, goal)
    places = house.scene.places
    ready = [
        place
        for thing, place in enumerate(house.where)
        if place != HAND
        and house.scene.things[thing].kind == goal.kind
        and places[place].kind == goal.target
        and _is_ready(house, goal, thing)
    ]
    return len(set(ready)) < len(ready) if goal.task == "two" else bool(ready)


def _under_the_lamp(house: House, goal: Goal) -> bool:
    if house.held is None or house.scene.things[house.held].kind != goal.kind:
        return False
    lamps = (lamp for lamp in house.used if house.scene.things[lamp].kind == goal.target)
    return any(house.where[lamp] != HAND and house.at(house.where[lamp]) for lamp in lamps)


def _is_ready(house: House, goal: Goal, thing: int) -> bool:
    """Whether ``thing`` has been treated as the goal asks."""
    if goal.task == "clean":
        return thing in house.clean
    if goal.task == "heat":
        return thing in house.hot
    return goal.task != "cool" or thing in house.cool


def next_command(house: House, goal: Goal) -> str:
    """Return the next command of the recipe."""
    if house.held is None:
        return _fetch(house, goal)
    thing = house.scene.things[house.held]
    if thing.kind != goal.kind or (goal.task in TREATMENTS and goal.task not in thing.traits):
        return _put_away(house, house.held)
    if goal.task == "look":
        lamp = _of_kind(house, goal.target)[0]
        return _walk(house, house.where[lamp]) or f"use {house.scene.things[lamp].name}"
    if not _is_ready(house, goal, house.held):
        tool = next(index for index, place in enumerate(house.scene.places) if place.treats == goal.task)
        return _walk(house, tool) or f"{goal.task} {thing.name} with {house.scene.places[tool].name}"
    return _put(house, house.held, _destination(house, goal))


def _fetch(house: House, goal: Goal) -> str:
    candidates = _of_kind(house, goal.kind)
    if goal.task == "two":
        target = _destination(house, goal)
        candidates = [thing for thing in candidates if house.where[thing] != target]
    elif goal.task in TREATMENTS:
        candidates = [thing for thing in candidates if goal.task in house.scene.things[thing].traits]
    thing = candidates[0]
    place = house.where[thing]
    if not house.at(place) or not house.accessible(place):
        return _reach(house, place)
    return f"take {house.scene.things[thing].name} from {house.scene.places[place].name}"


def _of_kind(house: House, kind: str) -> list[int]:
    """All things of ``kind``; those that the agent sees now come first."""
    matches = [index for index, thing in enumerate(house.scene.things) if thing.kind == kind]
    return sorted(matches, key=lambda thing: not house.visible(thing))


def _destination(house: House, goal: Goal) -> int:
    """The place to bring things to: for two things, the place that holds most of them."""
    places = [index for index, place in enumerate(house.scene.places) if place.kind == goal.target]
    wanted = _of_kind(house, goal.kind)
    return max(places, key=lambda place: (sum(house.where[thing] == place for thing in wanted), -place))


def _put_away(house: House, thing: int) -> str:
    fitting = [index for index in range(len(house.scene.places)) if house.scene.may_hold(index, thing)]
    if not fitting:
        return "look"  # only in data of others: the thing fits nowhere, so the task is lost
    return _put(house, thing, min(fitting, key=lambda place: (not house.at(place), not house.accessible(place), place)))


def _put(house: House, thing: int, place: int) -> str:
    return _reach(house, place) or f"move {house.scene.things[thing].name} to {house.scene.places[place].name}"


def _reach(house: House, place: int) -> str:
    """The command that brings the agent nearer to the content of ``place``; empty if it can reach it."""
    return _walk(house, place) or ("" if house.accessible(place) else f"open {house.scene.places[place].name}")


def _walk(house: House, place: int) -> str:
    return "" if house.at(place) else f"go to {house.scene.places[place].name}"
