"""What the agent reads: the mission, what it sees, and what it can do."""

from collections.abc import Iterable, Sequence
from typing import Any

from palestra.worlds.babyai.sight import Sight, Thing

__all__ = ["beginning", "scene"]


def beginning(mission: str, actions: Sequence[str], max_turns: int) -> str:
    """Return the rules and the mission."""
    return (
        "You move through rooms on a grid. You see the cells ahead of you, up to 6 steps ahead and 3 to each side, and nothing "
        "behind walls and closed doors.\n"
        f"Your mission: {mission}.\n"
        f"In each of up to {max_turns} turns, write one action on a line of its own: {', '.join(actions)}. "
        'If you write more than the action, begin its line with "Action:".'
    )


def scene(sight: Sight, actions: Iterable[str] | None) -> str:
    """Return what the agent sees and, unless it is ``None``, the list of possible actions."""
    seen = "; ".join(map(_told, sight.things)) or "no objects"
    hand = "nothing" if sight.carried is None else f"a {sight.carried.color} {sight.carried.type}"
    text = f"You see: {seen}.\n{_ahead(sight)} You carry {hand}."
    return text if actions is None else f"{text}\nPossible actions: {', '.join(actions)}"


def _told(thing: Thing) -> str:
    if not thing.right:
        where = f"{thing.ahead} ahead"
    else:
        side = f"{abs(thing.right)} to the {'right' if thing.right > 0 else 'left'}"
        where = f"{thing.ahead} ahead and {side}" if thing.ahead else side
    return f"{thing.name} ({f'{thing.state}, ' if thing.state else ''}{where})"


def _ahead(sight: Sight) -> str:
    count, end = sight.free_ahead()
    free = f"{count} free cell{'' if count == 1 else 's'}" if count else ""
    if end is None:
        return f"Straight ahead: {free}." if free else "Straight ahead: nothing that you can see."
    return f"Straight ahead: {f'{free}, then ' if free else ''}{_name_of(end)}."


def _name_of(thing: Any) -> str:
    return "a wall" if thing.type == "wall" else f"a {thing.color} {thing.type}"
