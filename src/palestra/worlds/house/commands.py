"""Commands: how to read one, which ones work now, and what the agent reads after one.

``palestra.authoring.action_line`` finds the line of a reply that is the command. Names have a number: ``take mug 2 from shelf
1``.
"""

import re
from typing import NamedTuple

from palestra.authoring.action_line import action_line
from palestra.worlds.house.goals import TREATMENTS
from palestra.worlds.house.world import HAND, MIDDLE, House

__all__ = ["GRAMMAR", "Command", "Feedback", "describe_place", "perform", "possible_commands", "read_command", "room_view"]

GRAMMAR = """\
go to PLACE
open PLACE
close PLACE
take THING from PLACE
move THING to PLACE
clean THING with PLACE
heat THING with PLACE
cool THING with PLACE
use THING
examine PLACE or THING
look
inventory"""

_LONGEST = 160
"""Characters of the longest line that can be a command."""
_SHAPE = re.compile(
    r"(?P<alone>look|inventory)"
    r"|(?P<one>go to|open|close|use|examine) (?:the )?(?P<name>.+)"
    r"|(?:(?P<take>take) (?:the )?(?P<taken>.+?) from"
    r"|(?P<move>move) (?:the )?(?P<moved>.+?) to"
    r"|(?P<treat>clean|heat|cool) (?:the )?(?P<treated>.+?) with) (?:the )?(?P<place>.+)"
)


class Command(NamedTuple):
    """A command that could be read."""

    verb: str
    name: str = ""
    """The place or thing that the verb acts on."""
    place: str = ""
    """The place after ``from``, ``to`` or ``with``."""


class Feedback(NamedTuple):
    """What the agent reads after a command."""

    text: str
    worked: bool


def read_command(reply: str) -> Command | None:
    """Return the command in ``reply``, or ``None`` if its action is not a command."""
    line = action_line(reply).lower()
    match = _SHAPE.fullmatch(line) if len(line) <= _LONGEST else None
    if match is None:
        return None
    verb = match.lastgroup
    if verb == "alone":
        return Command(line)
    if verb == "name":
        return Command(match["one"], match["name"])
    verb = match["take"] or match["move"] or match["treat"]
    return Command(verb, match["taken"] or match["moved"] or match["treated"], match["place"])


def perform(house: House, command: Command) -> Feedback:
    """Carry out ``command`` as far as it works."""
    verb = command.verb
    if verb == "look":
        return Feedback(_look(house), True)
    if verb == "inventory":
        return Feedback(_inventory(house), True)
    if verb == "examine":
        return _examine(house, command.name)
    if verb in ("go to", "open", "close"):
        return _at_a_place(house, verb, command.name)
    thing = house.scene.thing_named.get(command.name)
    if verb == "use":
        reason = house.use(thing) if thing is not None else _not_here(command.name)
        return Feedback(reason or f"You switch {command.name} {'on' if thing in house.lit else 'off'}.", not reason)
    place = house.scene.place_named.get(command.place)
    if place is None:
        return Feedback(_no_place(command.place), False)
    if thing is None:
        return Feedback(_without_it(house, command, place), False)
    return _with_a_thing(house, command, thing, place)


def _at_a_place(house: House, verb: str, name: str) -> Feedback:
    place = house.scene.place_named.get(name)
    if place is None:
        return Feedback(_no_place(name), False)
    if verb == "close":
        reason = house.close(place)
        return Feedback(reason or f"You close {name}.", not reason)
    reason = house.go(place) if verb == "go to" else house.open(place)
    if reason:
        return Feedback(reason, False)
    return Feedback(f"You {'walk to' if verb == 'go to' else 'open'} {name}. {describe_place(house, place)}", True)


def _with_a_thing(house: House, command: Command, thing: int, place: int) -> Feedback:
    verb, name, there = command
    if verb == "take":
        reason = house.take(thing, place)
        return Feedback(reason or f"You take {name} from {there}.", not reason)
    if verb == "move":
        reason = house.move(thing, place)
        return Feedback(reason or f"You put {name} {'into' if house.scene.places[place].hollow else 'on'} {there}.", not reason)
    reason = house.treat(verb, thing, place)
    return Feedback(reason or f"You {verb} {name} with {there}.", not reason)


def _examine(house: House, name: str) -> Feedback:
    place = house.scene.place_named.get(name)
    if place is not None:
        if not house.at(place):
            return Feedback(f"You are not at {name}.", False)
        return Feedback(f"{name}: {describe_place(house, place)}", True)
    thing = house.scene.thing_named.get(name)
    if thing is None or not house.visible(thing):
        return Feedback(_not_here(name), False)
    return Feedback(_describe_thing(house, thing), True)


def _not_here(name: str) -> str:
    return f"You see no {name} here."


def _without_it(house: House, command: Command, place: int) -> str:
    """The answer for a thing that does not exist: the same as for one that lies elsewhere."""
    if command.verb != "take":
        return f"You do not hold {command.name}."
    return house.out_of_reach(place) or f"You see no {command.name} at {command.place}."


def _no_place(name: str) -> str:
    return f"There is no {name} in the room: write its name and number, as in the list of places."


def describe_place(house: House, place: int) -> str:
    """Return what the agent sees in or on ``place``."""
    if not house.accessible(place):
        return "It is closed."
    names = ", ".join(house.scene.things[thing].name for thing in house.content(place))
    if house.scene.places[place].openable:
        return f"It is open. Inside: {names}." if names else "It is open and empty."
    where = "in" if house.scene.places[place].hollow else "on"
    return f"{where.capitalize()} it: {names}." if names else f"There is nothing {where} it."


def _describe_thing(house: House, thing: int) -> str:
    named = house.scene.things[thing]
    if "switch" in named.traits:
        return f"{named.name} is {'on' if thing in house.lit else 'off'}."
    words = [word for word, marked in (("clean", house.clean), ("hot", house.hot), ("cold", house.cool)) if thing in marked]
    return f"{named.name} is {' and '.join(words)}." if words else f"There is nothing special about {named.name}."


def room_view(house: House) -> str:
    """Return the places of the room."""
    return f"You are in a {house.scene.room}. You see: {', '.join(place.name for place in house.scene.places)}."


def _look(house: House) -> str:
    if house.spot == MIDDLE:
        return room_view(house)
    return " ".join(f"You are at {house.scene.places[place].name}. {describe_place(house, place)}" for place in house.here())


def _inventory(house: House) -> str:
    return "Your hand is empty." if house.held is None else f"You hold {house.scene.things[house.held].name}."


def possible_commands(house: House) -> list[str]:
    """Return every command that works now."""
    here = house.here()
    places = house.scene.places
    commands = ["look", "inventory"]
    commands += [f"go to {place.name}" for place in places if place.spot != house.spot]
    for index in here:
        name = places[index].name
        commands.append(f"examine {name}")
        if places[index].openable:
            commands.append(f"{'close' if index in house.opened else 'open'} {name}")
        if house.held is not None:
            commands += _uses_of_the_hand(house, house.held, index)
    for thing, place in enumerate(house.where):
        if place in here or place == HAND:
            commands += _uses_of(house, thing, place)
    return commands


def _uses_of_the_hand(house: House, held: int, place: int) -> list[str]:
    thing, there = house.scene.things[held], house.scene.places[place]
    commands = []
    if house.accessible(place) and house.scene.may_hold(place, held):
        commands.append(f"move {thing.name} to {there.name}")
    if there.treats in TREATMENTS and there.treats in thing.traits:
        commands.append(f"{there.treats} {thing.name} with {there.name}")
    return commands


def _uses_of(house: House, thing: int, place: int) -> list[str]:
    named = house.scene.things[thing]
    commands = []
    if house.visible(thing):
        commands.append(f"examine {named.name}")
        if place != HAND and house.held is None and "take" in named.traits:
            commands.append(f"take {named.name} from {house.scene.places[place].name}")
    if place != HAND and "switch" in named.traits:
        commands.append(f"use {named.name}")
    return commands
