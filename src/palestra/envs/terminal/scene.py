"""A task of a terminal world as data: what the agent reads, the files it finds, how it is graded, and how it can be solved.

A family is a function from a generator and a level to a ``Scene``. The grader never runs in the agent's shell. It reads files
of the layer by descriptor, and if it has to run what the agent wrote, it does so in a fresh shell and compares the output here.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from palestra.sandbox.layers import Entry, NewFile

__all__ = ["HOME", "LEVELS", "Final", "Scene", "at_home", "draw", "read_json", "same_lines", "sample", "script", "text_file"]

HOME = "home/agent"
LEVELS = ("easy", "medium", "hard")

T = TypeVar("T")


class Final(Protocol):
    """What a grader sees of the end of an episode."""

    def text(self, path: str) -> str | None:
        """Return a file below the agent's home as text; ``None`` if it is missing, not regular, or not text."""
        ...

    def tree(self, folder: str) -> list[Entry]:
        """Return everything below a folder of the agent's home; paths are relative to the home."""
        ...

    def processes(self) -> list[list[str]]:
        """Return the arguments of every process in the box, as the kernel reports them."""
        ...

    def first_processes(self) -> list[list[str]]:
        """Return the same for the processes that ran before the agent's first turn and still run."""
        ...

    async def fresh(self, files: Sequence[NewFile], command: str, seconds: float = 20.0) -> str:
        """Return what ``command`` prints in a fresh shell with ``files``."""
        ...


Check = Callable[[Final], bool | Awaitable[bool]]


@dataclass(frozen=True)
class Scene:
    """One task."""

    goal: str
    files: Sequence[NewFile]
    check: Check
    solution: Sequence[str]
    """Commands that solve the task, one per turn."""
    setup: str = ""
    """A command that runs before the agent's first turn, to start processes."""


def text_file(path: str, text: str, mode: int = 0o644) -> NewFile:
    """Return a text file below the agent's home."""
    return NewFile(f"{HOME}/{path}", text.encode(), mode)


def at_home(entry: Entry) -> NewFile:
    """Return a file of ``Final.tree`` as a new file, for a fresh shell."""
    return NewFile(f"{HOME}/{entry.path}", entry.content or b"", entry.mode & 0o777)


def script(*lines: str) -> str:
    """Return a command of several lines."""
    return "\n".join(lines)


def draw(rng: np.random.Generator, items: Sequence[T]) -> T:
    """Return one of ``items``."""
    return items[int(rng.integers(len(items)))]


def sample(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """Return ``count`` different ones of ``items``, in random order."""
    return [items[place] for place in rng.permutation(len(items))[:count].tolist()]


def same_lines(text: str | None, expected: Sequence[str]) -> bool:
    """Return whether ``text`` has exactly these lines; blanks at the ends of lines and of the text do not count."""
    return text is not None and _bare_lines(text) == _bare_lines("\n".join(expected))


def _bare_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def read_json(text: str | None) -> Any:
    """Return the value of a JSON text; ``None`` if it is not JSON."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
