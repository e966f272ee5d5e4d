"""What the domains draw from: invented people and places, and requests."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from palestra.worlds.desk.case import Database

__all__ = ["address", "chosen", "empty", "full_names", "shuffled_makers"]

_Made = TypeVar("_Made")

_FIRST = (
    *("Ada", "Bela", "Carla", "Dario", "Edda", "Felix", "Gita", "Hanno", "Ines", "Jonas", "Kira", "Lukas", "Mila", "Noor"),
    *("Otto", "Pia", "Quinn", "Rosa", "Sami", "Tilda", "Ugo", "Vera", "Wim", "Xenia", "Yara", "Zeno"),
)
_LAST = (
    *("Abbot", "Brandt", "Cordero", "Dekker", "Evers", "Falk", "Grant", "Holm", "Ivers", "Jansen", "Keller", "Lind", "Moreau"),
    *("Novak", "Olsen", "Petrov", "Quist", "Rossi", "Stern", "Tamm", "Ulrich", "Varga", "Weiss", "Young", "Zimmer"),
)
_STREETS = ("Mill Lane", "Harbor Road", "Elm Street", "Station Road", "Hill Street", "Orchard Way", "Canal Street", "Park Row")
_TOWNS = ("Arden", "Brookfield", "Carrick", "Dunmore", "Eastvale", "Fairhaven")


def chosen(rng: np.random.Generator, items: "tuple[str, ...] | list[str]") -> str:
    """One of ``items``."""
    return items[int(rng.integers(len(items)))]


def full_names(rng: np.random.Generator, count: int) -> list[str]:
    """Different full names."""
    places = rng.permutation(len(_FIRST) * len(_LAST))[:count].tolist()
    return [f"{_FIRST[place % len(_FIRST)]} {_LAST[place // len(_FIRST)]}" for place in places]


def address(rng: np.random.Generator) -> str:
    """A street and a town."""
    return f"{int(rng.integers(1, 200))} {chosen(rng, _STREETS)}, {chosen(rng, _TOWNS)}"


def shuffled_makers(rng: np.random.Generator, *parts: tuple[Sequence[_Made], int]) -> list[_Made]:
    """Draw a number of different items from each part, and shuffle all of them."""
    drawn = [items[place] for items, count in parts for place in rng.permutation(len(items))[:count].tolist()]
    return [drawn[place] for place in rng.permutation(len(drawn)).tolist()]


def empty(*tables: str) -> Database:
    """A database without records."""
    return {table: {} for table in tables}
