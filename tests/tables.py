"""Corpora as tables. Spaces at the ends of a cell do not count: ``␣`` is such a space, and ``⏎`` ends a line of a cell."""

import re
from collections.abc import Callable
from typing import TypeVar

Pair = tuple[str, str]
"""A reply and the accepted answer."""
_Row = TypeVar("_Row")


def cells(table: str) -> list[list[str]]:
    """Return the rows of ``table``, with ``¦`` between cells. ``‖`` ends a row; a line with blanks at its begin goes on."""
    lines = re.sub(r"\n +(?=[⏎¦])", "", table.strip("\n")).replace("‖", "\n").split("\n")
    return [[cell.strip(" ").replace("␣", " ").replace("⏎", "\n") for cell in line.split("¦")] for line in lines]


def rows(make: Callable[..., _Row]) -> Callable[[str], list[_Row]]:
    """Return a function that reads a table and returns what ``make`` makes of the cells of each row."""
    return lambda table: [make(*row) for row in cells(table)]


def pairs(table: str) -> list[Pair]:
    """Return the pairs of ``table``: ``accepted ← reply ¦ reply``."""
    return [(reply, gold) for gold, *replies in cells(table.replace("←", "¦")) for reply in replies]


def forms(table: str) -> dict[str, list[str]]:
    """Return the replies of ``table`` by accepted answer."""
    found: dict[str, list[str]] = {}
    for reply, gold in pairs(table):
        found.setdefault(gold, []).append(reply)
    return found
