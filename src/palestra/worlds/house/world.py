"""The rules of a household: places, things, and what each verb needs and changes.

The rules are those of ALFWorld's planning domain. A place stands at a spot, and the agent acts on the places at its own spot. A
place that opens hides its content while it is closed. The agent holds at most one thing. A sink cleans, a microwave heats and a
fridge cools the thing in the agent's hand, whether they are open or closed.

``Scene`` is what never changes, ``House`` is the state. A verb is a method of ``House``: it returns an empty text if it worked,
and otherwise the reason why not. A reason never tells where a thing is that the agent has not found.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["HAND", "MIDDLE", "House", "Place", "Scene", "Thing"]

HAND = -1
"""The index of the place of a thing that the agent holds."""
MIDDLE = -1
"""The spot where an episode begins: no place stands there."""

_TREATED = {"clean": "cleaned", "heat": "heated", "cool": "cooled"}


class Place(NamedTuple):
    """Something that holds things: a table, a drawer, a fridge."""

    name: str
    """Its kind and number: ``drawer 2``."""
    kind: str
    spot: int
    openable: bool = False
    hollow: bool = False
    """Things lie in it, not on it."""
    treats: str = ""
    """What it does to a thing in the agent's hand: ``clean``, ``heat`` or ``cool``."""


class Thing(NamedTuple):
    """Something that lies in a place."""

    name: str
    kind: str
    traits: frozenset[str]
    """``take`` if the agent can take it, ``switch`` for a lamp, and which of ``clean``, ``heat`` and ``cool`` apply to it."""


class Scene:
    """A room and everything in it; it never changes.

    Args:
        room: The name of the room.
        places: All places.
        things: All things.
        fits: The kind of a place → the kinds of things that may be put there.
    """

    def __init__(self, room: str, places: Sequence[Place], things: Sequence[Thing], fits: Mapping[str, frozenset[str]]) -> None:
        self.room = room
        self.places = tuple(places)
        self.things = tuple(things)
        self.fits = fits
        self.place_named = {place.name: index for index, place in enumerate(self.places)}
        self.thing_named = {thing.name: index for index, thing in enumerate(self.things)}

    def may_hold(self, place: int, thing: int) -> bool:
        """Return whether ``thing`` may be put into ``place``."""
        return self.things[thing].kind in self.fits.get(self.places[place].kind, ())


class House:
    """The state of an episode.

    Args:
        scene: The room.
        where: The index of the place of each thing.
        opened: The indices of the places that are open.
    """

    __slots__ = ("clean", "cool", "held", "hot", "lit", "opened", "scene", "seen", "spot", "used", "where")

    def __init__(self, scene: Scene, where: Sequence[int], opened: set[int] | None = None) -> None:
        self.scene = scene
        self.where = list(where)
        self.opened = set(opened or ())
        self.spot = MIDDLE
        self.held: int | None = None
        self.clean: set[int] = set()
        self.hot: set[int] = set()
        self.cool: set[int] = set()
        self.lit: set[int] = set()
        """Lamps that are on."""
        self.used: set[int] = set()
        """Lamps that were switched at least once."""
        self.seen: set[int] = set()
        """Places whose content the agent has seen; only pictures use it."""

    def copy(self) -> "House":
        """Return an independent copy of the state; it shares the scene."""
        twin = House(self.scene, self.where, self.opened)
        twin.spot, twin.held = self.spot, self.held
        for name in ("clean", "hot", "cool", "lit", "used", "seen"):
            setattr(twin, name, set(getattr(self, name)))
        return twin

    # What holds now.

    def at(self, place: int) -> bool:
        """Return whether the agent stands at ``place``."""
        return self.scene.places[place].spot == self.spot

    def accessible(self, place: int) -> bool:
        """Return whether ``place`` is open or has no door."""
        return place in self.opened or not self.scene.places[place].openable

    def content(self, place: int) -> list[int]:
        """Return the things in ``place``, hidden or not."""
        return [thing for thing, there in enumerate(self.where) if there == place]

    def here(self) -> list[int]:
        """Return the places at the agent's spot."""
        return [index for index, place in enumerate(self.scene.places) if place.spot == self.spot]

    def visible(self, thing: int) -> bool:
        """Return whether the agent holds ``thing`` or sees it at its spot."""
        place = self.where[thing]
        return place == HAND or (self.at(place) and self.accessible(place))

    # The verbs.

    def go(self, place: int) -> str:
        """Walk to ``place``."""
        if self.at(place):
            return f"You are already at {self.scene.places[place].name}."
        self.spot = self.scene.places[place].spot
        self._note(place)
        return ""

    def open(self, place: int) -> str:
        """Open ``place``."""
        if reason := self._no_door(place):
            return reason
        if place in self.opened:
            return f"{self.scene.places[place].name} is already open."
        self.opened.add(place)
        self._note(place)
        return ""

    def close(self, place: int) -> str:
        """Close ``place``."""
        if reason := self._no_door(place):
            return reason
        if place not in self.opened:
            return f"{self.scene.places[place].name} is already closed."
        self.opened.discard(place)
        return ""

    def take(self, thing: int, place: int) -> str:
        """Take ``thing`` out of ``place``."""
        name = self.scene.things[thing].name
        if reason := self.out_of_reach(place):
            return reason
        if self.where[thing] != place:
            return f"You see no {name} at {self.scene.places[place].name}."
        if self.held is not None:
            return f"Your hand is full: you hold {self.scene.things[self.held].name}."
        if "take" not in self.scene.things[thing].traits:
            return f"You cannot carry {name}."
        self.where[thing] = HAND
        self.held = thing
        return ""

    def move(self, thing: int, place: int) -> str:
        """Put ``thing``, which the agent holds, into ``place``."""
        if self.held != thing:
            return f"You do not hold {self.scene.things[thing].name}."
        if reason := self.out_of_reach(place):
            return reason
        if not self.scene.may_hold(place, thing):
            return f"{self.scene.things[thing].name} does not belong in or on {self.scene.places[place].name}."
        self.where[thing] = place
        self.held = None
        return ""

    def treat(self, how: str, thing: int, place: int) -> str:
        """Clean, heat or cool ``thing``, which the agent holds, with ``place``."""
        named, there = self.scene.things[thing], self.scene.places[place]
        if self.held != thing:
            return f"You do not hold {named.name}."
        if there.spot != self.spot:
            return f"You are not at {there.name}."
        if there.treats != how:
            return f"Nothing can be {_TREATED[how]} with {there.name}."
        if how not in named.traits:
            return f"{named.name} cannot be {_TREATED[how]}."
        if how == "clean":
            self.clean.add(thing)
        else:
            gained, lost = (self.hot, self.cool) if how == "heat" else (self.cool, self.hot)
            gained.add(thing)
            lost.discard(thing)
        return ""

    def use(self, thing: int) -> str:
        """Switch a lamp at the agent's spot on or off."""
        place = self.where[thing]
        name = self.scene.things[thing].name
        if not self.visible(thing):
            return f"You see no {name} here."
        if place == HAND or "switch" not in self.scene.things[thing].traits:
            return f"{name} has no switch that you could use now."
        self.lit ^= {thing}
        self.used.add(thing)
        return ""

    def _no_door(self, place: int) -> str:
        there = self.scene.places[place]
        if there.spot != self.spot:
            return f"You are not at {there.name}."
        return "" if there.openable else f"{there.name} has no door."

    def out_of_reach(self, place: int) -> str:
        """Return why the agent cannot reach into ``place``, or an empty text."""
        there = self.scene.places[place]
        if there.spot != self.spot:
            return f"You are not at {there.name}."
        return "" if self.accessible(place) else f"{there.name} is closed."

    def _note(self, place: int) -> None:
        if self.accessible(place):
            self.seen.add(place)
