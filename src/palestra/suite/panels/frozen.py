"""What a panel is, and how the hashes of its tasks are computed."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from importlib import metadata

import msgspec

from palestra.authoring.panels import PanelTask
from palestra.core import Env
from palestra.errors import SchemaError
from palestra.foundation.encoding import encode_msgpack
from palestra.registry import make, spec
from palestra.trajectory import Content, Task

__all__ = ["FrozenPanel", "FrozenTask", "first_observation_hash", "freeze", "package_versions_of", "start_all"]


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
    packages: dict[str, str] = {}
    """Package → version, of those that the tasks depend on, when the panel was frozen."""

    def __iter__(self) -> Iterator[Task]:
        return (entry.task for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def sha256(self) -> str:
        """The content hash of the panel: over each task, the hash of its first observation and its column, in order."""
        named = [(entry.task, entry.sha256, entry.group) for entry in self.entries]
        return hashlib.sha256(encode_msgpack(named)).hexdigest()

    @property
    def label(self) -> str:
        """``NAME@HASH``: what run folders and reports call the panel."""
        return f"{self.name}@{self.sha256[:16]}"

    def compare(self, place: int, observation: Content) -> None:
        """Compare what a player sees first in the task at ``place`` with what was frozen.

        Raises:
            SchemaError: It is something else; the message names the packages that differ and what to type.
        """
        entry = self.entries[place]
        if first_observation_hash(observation) != entry.sha256:
            task = ", ".join(
                [entry.task.env, f"seed {entry.task.seed}", *(f"{key} {value}" for key, value in _named(entry.task))]
            )
            raise SchemaError(f"the panel {self.name} has changed: {task}, begins with another observation. {self._reason()}")

    def _reason(self) -> str:
        here = package_versions_of(entry.task.env for entry in self.entries)
        other = {name: version for name, version in self.packages.items() if here.get(name) != version}
        if not other:
            frozen = ", ".join(f"{name} {version}" for name, version in self.packages.items())
            return f"The packages are those of the panel ({frozen}), so the environment's own code is another: update palestra"
        differ = " and ".join(f"{name} {here.get(name, 'missing')} instead of {version}" for name, version in other.items())
        return f"Here is {differ}. Type: pip install {' '.join(f'{name}=={version}' for name, version in other.items())}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The column of each task, in the order of the tasks; empty if no task has one."""
        found = tuple(entry.group for entry in self.entries)
        return found if any(found) else ()


def first_observation_hash(observation: Content) -> str:
    """Return the beginning of the SHA-256 of what a player sees first, text and images."""
    return hashlib.sha256(encode_msgpack(observation)).hexdigest()[:16]


def package_versions_of(envs: Iterable[str]) -> dict[str, str]:
    """Return the versions of Palestra, NumPy and the packages that ``envs`` need, as they are installed here."""
    modules = {need.module for env in dict.fromkeys(envs) for need in spec(env).needs if need.module}
    found = {}
    for name in sorted(modules | {"palestra", "numpy"}):
        with suppress(metadata.PackageNotFoundError):  # not installed, or its module has another name
            found[name] = metadata.version(name)
    return found


def _named(task: Task) -> Iterator[tuple[str, object]]:
    """What names the task besides its environment and its seed."""
    if task.index is not None:
        yield "index", task.index
    yield from task.params.items()


def freeze(tasks: Iterable[PanelTask]) -> list[FrozenTask]:
    """Start every task once and return the tasks with the hashes of their first observations."""
    listed = list(tasks)
    begun = _begun(task for task, _ in listed)
    return [FrozenTask(task, first_observation_hash(seen), group) for (task, group), seen in zip(listed, begun, strict=True)]


def start_all(panel: FrozenPanel) -> None:
    """Start every task of ``panel`` once and compare what it shows first.

    Raises:
        SchemaError: A task begins with another observation.
    """
    for place, seen in enumerate(_begun(panel)):
        panel.compare(place, seen)


def _begun(tasks: Iterable[Task]) -> Iterator[Content]:
    """Start every task and yield what it shows first."""
    with ExitStack() as stack:
        envs: dict[str, Env] = {}
        for task in tasks:
            if task.env not in envs:
                envs[task.env] = stack.enter_context(make(task.env))
            yield envs[task.env].reset(task=task)[0]
