"""The actions: their grammar, which of them are possible now, and the primitive actions that each one stands for.

``turn left``, ``turn right``, ``move forward``, ``drop``, ``toggle``
``go to OBJECT``, ``pick up OBJECT``            walk until the agent faces the object; then pick it up
``go through DOOR``                             walk into the doorway of an open door
``toggle and go through DOOR``                  walk to a closed door, open it and step into the doorway

An object is written as in the observation: ``red ball 2``. Without a number, it is the nearest one.
"""

import re

from palestra.authoring.action_line import action_line
from palestra.worlds.babyai.sight import Sight, Thing
from palestra.worlds.babyai.world import DONE, DROP, FORWARD, LEFT, PICK_UP, PRIMITIVES, RIGHT, TOGGLE

__all__ = ["GRAMMAR", "Moves", "action_of", "line_of", "moves_of", "primitive_of"]

GRAMMAR = (
    "turn left",
    "turn right",
    "move forward",
    "go to OBJECT",
    "pick up OBJECT",
    "drop",
    "toggle",
    "go through DOOR",
    "toggle and go through DOOR",
)

_LONGEST = 200
"""Longest action in characters; longer lines have no meaning."""

_NUMBERED = re.compile(r" \d+$")
_OBJECT_VERBS = ("go to ", "pick up ", "go through ", "toggle and go through ")

Moves = dict[str, list[int]]
"""Action → the primitive actions that it stands for."""


def line_of(text: str) -> str:
    """Return the action in ``text`` in lower case; empty if there is none, or if it is too long for an action."""
    line = action_line(text)
    return line.lower() if len(line) <= _LONGEST else ""


def action_of(text: str) -> str:
    """Return the action that ``text`` means: ``pickup`` is ``pick up``, and an object without a number is the nearest."""
    words = line_of(text)
    if words.startswith("pickup "):
        words = f"pick up {words.removeprefix('pickup ')}"
    takes_object = words.startswith(_OBJECT_VERBS)
    return f"{words} 1" if takes_object and not _NUMBERED.search(words) else words


def primitive_of(text: str) -> int | None:
    """Return the primitive action that ``text`` means, or ``None``."""
    words = action_of(text)
    return PRIMITIVES.index(words) if words in PRIMITIVES else None


def moves_of(sight: Sight) -> Moves:
    """Return every action that is possible now."""
    moves: Moves = {PRIMITIVES[LEFT]: [LEFT], PRIMITIVES[RIGHT]: [RIGHT]}
    faced = sight.faced
    if sight.free_ahead()[0]:
        moves[PRIMITIVES[FORWARD]] = [FORWARD]
    if sight.carried is not None and faced is None:
        moves[PRIMITIVES[DROP]] = [DROP]
    if faced is not None and faced.type in ("door", "box"):
        moves[PRIMITIVES[TOGGLE]] = [TOGGLE]
    for thing in sight.things:
        way = sight.way_to_face(thing.cell)
        if way is not None:
            moves.update(_moves_at(thing, way, sight))
    return moves


def _moves_at(thing: Thing, way: list[int], sight: Sight) -> Moves:
    """Return the actions on ``thing``. The agent faces it after ``way``."""
    # minigrid checks a mission after a step only, so an agent that already faces the object has to take one.
    moves = {f"go to {thing.name}": way or [DONE]}
    if not thing.is_door:
        if sight.carried is None:
            moves[f"pick up {thing.name}"] = [*way, PICK_UP]
    elif thing.state == "open":
        moves[f"go through {thing.name}"] = [*way, FORWARD]
    elif thing.state == "closed" or _fits(sight, thing):
        moves[f"toggle and go through {thing.name}"] = [*way, TOGGLE, FORWARD]
    return moves


def _fits(sight: Sight, door: Thing) -> bool:
    """Return whether the agent carries the key of ``door``."""
    key = sight.carried
    return key is not None and f"{key.color} {key.type}" == door.kind.replace("door", "key")
