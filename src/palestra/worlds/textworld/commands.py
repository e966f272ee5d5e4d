"""From a reply to a command of the game, and from the output of the game to an observation.

Only commands that begin with a verb of the game are passed on. The interpreter of story files knows more: ``save`` and
``script`` write files, ``restart`` and ``quit`` ask questions, and commands such as ``tw-trace-actions`` are for TextWorld
itself. A command acts on one thing. A period, a comma and the word ``then`` would put a second command behind the first.
"""

import re
from collections.abc import Collection

from palestra.authoring.action_line import action_line

__all__ = ["first_text", "grammar", "observed", "read_command"]

_FORMS = {
    "look": "look",
    "inventory": "inventory",
    "go": "go DIRECTION (north, east, south or west)",
    "examine": "examine THING",
    "take": "take THING\ntake THING from PLACE",
    "drop": "drop THING",
    "put": "put THING on PLACE",
    "insert": "insert THING into PLACE",
    "open": "open THING",
    "close": "close THING",
    "unlock": "unlock THING with KEY",
    "lock": "lock THING with KEY",
    "eat": "eat THING",
    "drink": "drink THING",
    "slice": "slice THING with TOOL",
    "chop": "chop THING with TOOL",
    "dice": "dice THING with TOOL",
    "cook": "cook THING with APPLIANCE",
    "prepare": "prepare meal",
}
_SEVERAL = frozenset(("then", "and", "all", "both", "each", "every", "everything", "but", "except"))
"""Words with which the interpreter would do several things in one turn."""
_LONGEST = 150
_PLAIN = re.compile(r"[a-z0-9' -]+")
_STATUS = re.compile(r"\n>[^\n]*\Z")
_BLANK = re.compile(r"\n\s*\n+")


def grammar(verbs: Collection[str]) -> str:
    """Return the commands of a game with these verbs, one per line."""
    return "\n".join(form for verb, form in _FORMS.items() if verb in verbs)


def read_command(action: str, verbs: Collection[str]) -> str | None:
    """Return the command in a reply; ``None`` if its action is not a command of the game."""
    command = action_line(action).lower()
    if len(command) > _LONGEST or not _PLAIN.fullmatch(command):
        return None
    first, *rest = command.split()
    return command if first in verbs and first in _FORMS and _SEVERAL.isdisjoint(rest) else None


def observed(output: str) -> str:
    """Return the output of a game without its prompt and its status line."""
    return _BLANK.sub("\n\n", _STATUS.sub("", output.rstrip())).strip()


def first_text(output: str) -> str:
    """Return the first output of a game without the banner above it, which is drawn with dollar signs."""
    lines = output.split("\n")
    banner = [number for number, line in enumerate(lines) if "$$" in line]
    return observed("\n".join(lines[banner[-1] + 1 :] if banner else lines))
