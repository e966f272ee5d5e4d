"""What a panel is, and how the hashes of its tasks are computed."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from palestra.core import Env
from palestra.encoding import encode_msgpack
from palestra.registry import make
from palestra.trajectory import Content, Task

__all__ = ["FrozenPanel", "FrozenTask", "PanelTask", "first_observation_hash", "freeze"]


class PanelTask(NamedTuple):
    """A task of a panel, as a rule lists it."""

    task: Task
    group: str = ""
    """Its column in the report's table, ``World/Column``; empty if the report has no such table."""


class FrozenTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task of a panel, as its file keeps it."""

    task: Task
    sha256: str
    """Hash of the task's first observation."""
    group: str = ""


class FrozenPanel(msgspec.Struct, frozen=True):
    """A named list of tasks that never changes. It iterates over its ``Task`` objects, so it plays wherever tasks do."""

    name: str
    description: str
    entries: tuple[FrozenTask, ...]

    def __iter__(self) -> Iterator[Task]:
        return (entry.task for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def sha256(self) -> str:
        """The content hash of the panel: over the name of each task and the hash of its first observation, in order."""
        return hashlib.sha256(encode_msgpack([(entry.task, entry.sha256) for entry in self.entries])).hexdigest()

    @property
    def label(self) -> str:
        """``NAME@HASH``: what run folders and reports call the panel."""
        return f"{self.name}@{self.sha256[:16]}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The column of each task, in the order of the tasks; empty if no task has one."""
        found = tuple(entry.group for entry in self.entries)
        return found if any(found) else ()


def first_observation_hash(observation: Content) -> str:
    """Return the beginning of the SHA-256 of what a player sees first, text and images."""
    return hashlib.sha256(encode_msgpack(observation)).hexdigest()[:16]


def freeze(tasks: Iterable[PanelTask]) -> list[FrozenTask]:
    """Start every task once and return the tasks with the hashes of their first observations."""
    frozen = []
    with ExitStack() as stack:
        envs: dict[str, Env] = {}
        for task, group in tasks:
            if task.env not in envs:
                envs[task.env] = stack.enter_context(make(task.env))
            observation, _ = envs[task.env].reset(task=task)
            frozen.append(FrozenTask(task, first_observation_hash(observation), group))
    return frozen
