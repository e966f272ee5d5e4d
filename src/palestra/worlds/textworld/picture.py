"""A game as HTML for people: a map of the rooms that the agent has entered, and its last commands."""

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

__all__ = ["Seen", "drawn_game", "map_of"]

_ROOM = re.compile(r"^-= (.+) =-", re.MULTILINE)
_STEPS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}
_HERE, _VISITED, _QUIET = "#1a7f4e", "#4b5563", "#8390a2"
_LAST = 6
"""Commands that are shown."""

Place = tuple[int, int]
"""Steps to the east and to the south of the first room."""


class Seen(NamedTuple):
    """A command and the answer to it."""

    command: str
    text: str


def map_of(opening: str, seen: Sequence[Seen]) -> tuple[dict[Place, str], Place]:
    """Return the names of the rooms that the agent has entered, by place, and the place where it is."""
    x = y = 0
    rooms = {(0, 0): _name(opening) or "?"}
    for command, text in seen:
        verb, _, direction = command.partition(" ")
        name = _name(text)
        if verb == "go" and direction in _STEPS and name:
            x, y = x + _STEPS[direction][0], y + _STEPS[direction][1]
            rooms[x, y] = name
    return rooms, (x, y)


def _name(text: str) -> str | None:
    found = _ROOM.search(text)
    return found[1] if found else None


def drawn_game(state: str, opening: str, seen: Sequence[Seen]) -> str:
    """Return the points and turns (``state``), the map, and the last commands with the first line of each answer."""
    rooms, here = map_of(opening, seen)
    across, down = ([place[axis] for place in rooms] for axis in (0, 1))
    cells = (
        "".join(_cell(rooms.get((x, y)), (x, y) == here) for x in range(min(across), max(across) + 1))
        for y in range(min(down), max(down) + 1)
    )
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    commands = "".join(map(_command, seen[-_LAST:]))
    return (
        f'<div style="font:14px/22px ui-monospace,monospace"><div>{escape(state)}</div><table>{table}</table>{commands}</div>'
    )


def _cell(name: str | None, here: bool) -> str:
    if name is None:
        return "<td></td>"
    box = f"background:{_HERE if here else _VISITED};color:#fff;padding:4px 6px;border-radius:5px;text-align:center"
    return f'<td style="{box}">{escape(name)}</td>'


def _command(seen: Seen) -> str:
    answer = next((line for line in seen.text.splitlines() if line.strip()), "")
    return f'<div>&gt; {escape(seen.command)} <span style="color:{_QUIET}">{escape(answer)}</span></div>'
