"""A task of a terminal world as data: what the agent reads, the files it finds, how it is graded, and how it can be solved.

A family is a function from a generator and a level to a ``Scene``. The grader never runs in the agent's shell. It reads files
of the layer by descriptor, and if it has to run what the agent wrote, it does so in a fresh shell and compares the output here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from palestra.sandbox.layers import NewFile
from palestra.worlds.terminal.grading import Condition

__all__ = ["HOME", "LEVELS", "Scene", "draw", "sample", "script", "text_file"]

HOME = "home/agent"
LEVELS = ("easy", "medium", "hard")

T = TypeVar("T")


@dataclass(frozen=True)
class Scene:
    """One task."""

    goal: str
    files: Sequence[NewFile]
    checks: Sequence[Condition]
    """All of them must hold at the end."""
    solution: Sequence[str]
    """Commands that solve the task, one per turn."""
    setup: str = ""
    """A command that runs before the agent's first turn, to start processes."""


def text_file(path: str, text: str, mode: int = 0o644) -> NewFile:
    """Return a text file below the agent's home."""
    return NewFile(f"{HOME}/{path}", text.encode(), mode)


def script(*lines: str) -> str:
    """Return a command of several lines."""
    return "\n".join(lines)


def draw(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Return one of ``items``."""
    return items[int(rng.integers(len(items)))]


def sample(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """Return ``count`` different ones of ``items``, in random order."""
    return [items[index] for index in rng.permutation(len(items))[:count].tolist()]
