"""The commands of a player: ``get 2 oak logs``, ``craft 4 oak planks using 1 oak logs`` and ``inventory``.

``palestra.authoring.action_line`` finds the line of a reply that is the command. AgentGym has a rule of its own: a reply must
contain ``Action:`` exactly once, and the command is the line after it.
"""

from typing import NamedTuple

__all__ = ["LOOK", "CraftItem", "FetchItem", "Look", "line_of_agentgym", "read_command"]

_LABEL = "Action:"
_MOST_DIGITS = 6
_MOST_INPUTS = 16
_LONGEST = 1_000
"""Characters of the longest line that can be a command."""


class FetchItem(NamedTuple):
    """Take ``amount`` of a material."""

    amount: int
    item: str


class CraftItem(NamedTuple):
    """Use a recipe for ``item`` once, with these numbers of these items."""

    item: str
    inputs: dict[str, int]


class Look(NamedTuple):
    """List what the player has."""


LOOK = Look()


def line_of_agentgym(text: str) -> str:
    """Return the line after the only ``Action:``; empty if there is none or more than one."""
    _, label, after = text.partition(_LABEL)
    if not label or _LABEL in after:
        return ""
    return after.strip().partition("\n")[0]


def read_command(line: str) -> FetchItem | CraftItem | Look | None:
    """Return the command that ``line`` means; ``None`` if it is none."""
    if len(line) > _LONGEST:
        return None
    verb, _, rest = " ".join(line.lower().split()).removesuffix(".").partition(" ")
    if verb == "get":
        fetched = _counted(rest)
        return fetched and FetchItem(*fetched)
    if verb == "craft":
        return _read_craft(rest)
    return LOOK if verb == "inventory" and not rest else None


def _read_craft(text: str) -> CraftItem | None:
    made, using, parts = text.partition(" using ")
    if not using:
        return None
    # The recipe decides how many items one use gives, so the number before the item may be left out.
    counted = _counted(made)
    item = counted[1] if counted else made
    inputs: dict[str, int] = {}
    listed = parts.split(",", _MOST_INPUTS)
    for part in listed:
        one = _counted(part.strip())
        if one is None or one[1] in inputs:
            return None
        inputs[one[1]] = one[0]
    return CraftItem(item, inputs) if item and len(listed) <= _MOST_INPUTS else None


def _counted(text: str) -> tuple[int, str] | None:
    """Return the number and the name in ``3 oak planks``; ``None`` if there is no number from 1 to 999,999."""
    digits, _, name = text.partition(" ")
    if not name or len(digits) > _MOST_DIGITS or not digits.isascii() or not digits.isdecimal() or not int(digits):
        return None
    return int(digits), name
