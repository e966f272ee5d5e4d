"""How the worlds and the tasks of sites are drawn from a seed."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from palestra.worlds.web.sites.errands import Errand

__all__ = ["FIRST_NAMES", "Rng", "Template", "one_of", "session_key", "some_of"]

T = TypeVar("T")
Rng = np.random.Generator
Template = Callable[[T, Rng], Errand]
"""Draws a task for a world."""
FIRST_NAMES = ("Emma", "Noah", "Mia", "Liam", "Zoe", "Omar", "Ines", "Hugo", "Ada", "Felix", "Nora", "Ivan")


def one_of(rng: Rng, these: Sequence[T]) -> T:
    """Draw one."""
    return these[int(rng.integers(len(these)))]


def some_of(rng: Rng, these: Sequence[T], number: int) -> list[T]:
    """Draw different ones, in a random order."""
    return [these[index] for index in rng.choice(len(these), size=number, replace=False).tolist()]


def session_key(rng: Rng) -> str:
    """Draw the key of a session."""
    return bytes(rng.integers(0, 26, size=32, dtype=np.uint8) + ord("a")).decode()
