"""The panel of an evaluation: its tasks, fixed before the first episode, and what ``rollout`` needs to play exactly these."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from palestra.errors import UsageError
from palestra.foundation.encoding import encode_json
from palestra.registry import spec
from palestra.rollouts import Envs
from palestra.rollouts.supply import TaskList, data_digest, expanded, tasks_of
from palestra.suite.panels import FrozenPanel, start_all
from palestra.trajectory import Task, Trajectory

__all__ = ["Panel"]


@dataclass(frozen=True)
class Panel:
    """The tasks, and the specs of their environments.

    ``rollout`` needs both: a task has the id of its environment, and the id does not say that the environment is played on a
    server (``remote:URL#ID``).
    """

    source: TaskList
    factory: Callable[..., Any] | None = None
    """The environment class, if the caller gave one."""
    places: dict[str, str] = field(default_factory=dict)
    """Id → the name that the caller gave, for environments that are played on a server."""
    left_out: tuple[str, ...] = ()
    """Environments that match a pattern but cannot run on this machine."""
    smaller: tuple[str, ...] = ()
    """Finite environments with fewer tasks than asked for: each of their tasks is in the panel once."""
    frozen: FrozenPanel | None = None
    """The named panel, if the tasks are those of one."""

    @classmethod
    def of(cls, envs: Envs, n: int | None, seed: int) -> "Panel":
        """Draw ``n`` tasks per environment, each at most once, or take the first ``n`` of explicit tasks, or a named panel."""
        if isinstance(envs, FrozenPanel):
            return cls._of_frozen(envs, n)
        if callable(envs):
            tasks, specs = tasks_of(envs, n, seed)
            return cls(TaskList(tuple(tasks), tuple(specs)), envs)
        chosen: Any = [envs] if isinstance(envs, str) else list(envs)
        if not chosen or not all(isinstance(env, str) for env in chosen):
            given = tuple(tasks_of(chosen, n, seed)[0])
            _require(given, ())
            return cls(TaskList(given))
        names, left_out = expanded(chosen)
        names = list(dict.fromkeys(names))  # a pattern may match an id that is also named
        _require(names, left_out)
        tasks, specs = tasks_of(names, n, seed)
        places = {env_spec.id: name for name, env_spec in zip(names, specs, strict=True) if name != env_spec.id}
        once, smaller = _each_once(tasks)
        return cls(TaskList(once, tuple(specs)), None, places, tuple(left_out), smaller)

    @classmethod
    def _of_frozen(cls, panel: FrozenPanel, n: int | None) -> "Panel":
        if n is not None:
            raise UsageError(f'the panel "{panel.name}" is always played whole: leave out the number of tasks')
        specs = tuple(spec(env) for env in dict.fromkeys(task.env for task in panel))
        for env_spec in specs:
            env_spec.factory()  # says what to install, before the first episode
        return cls(TaskList(tuple(panel), specs), frozen=panel)

    async def check_starts(self) -> None:
        """Start every task of a named panel once and compare what it shows first. For wrappers, which change what players see.

        Raises:
            SchemaError: A task begins with another observation.
        """
        if self.frozen is not None:
            await asyncio.to_thread(start_all, self.frozen)

    def check(self, trajectory: Trajectory) -> None:
        """Compare what an episode of a named panel showed first with what was frozen.

        Raises:
            SchemaError: It is something else.
        """
        if self.frozen is not None and trajectory.turns:
            self.frozen.compare(trajectory.group, trajectory.turns[0].observation)

    @property
    def groups(self) -> tuple[str, ...]:
        """The column of each task in the table of a named panel; empty if there is no such table."""
        return self.frozen.groups if self.frozen else ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in the order in which they are played."""
        return self.source.tasks

    @property
    def notes(self) -> dict[str, str]:
        """Notes on the panel for the report."""
        notes = {"left out, because they cannot run here": ", ".join(self.left_out)} if self.left_out else {}
        counts = Counter(task.env for task in self.tasks)
        small = [f"{env} ({counts[env]})" for env in self.smaller]
        return {**notes, "fewer tasks than asked for, each played once": ", ".join(small)} if small else notes

    @property
    def envs(self) -> tuple[str, ...]:
        """The ids of the environments, sorted."""
        return tuple(sorted({task.env for task in self.tasks}))

    @property
    def digest(self) -> str:
        """A hash of the tasks, in order, and of the data that they draw from: a file that changes makes another panel.

        A named panel has a hash of its own, which also covers the first observations.
        """
        if self.frozen:
            return self.frozen.label
        data = [digest for env_spec in self.source.specs if (digest := data_digest(env_spec))]
        return hashlib.sha256(encode_json((self.tasks, data) if data else self.tasks)).hexdigest()[:16]

    def issued(self, group_size: int) -> dict[str, int]:
        """Environment → number of its episodes."""
        return {env: count * group_size for env, count in Counter(task.env for task in self.tasks).items()}


def _each_once(tasks: Iterable[Task]) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """Return ``tasks`` without repeated rows of finite environments, and the environments that had any."""
    kept: list[Task] = []
    seen: set[tuple[str, int]] = set()
    smaller: set[str] = set()
    for task in tasks:
        if task.index is None:
            kept.append(task)
        elif (task.env, task.index) in seen:
            smaller.add(task.env)
        else:
            seen.add((task.env, task.index))
            kept.append(task)
    return tuple(kept), tuple(sorted(smaller))


def _require(tasks: Sequence[object], left_out: Sequence[str]) -> None:
    if not tasks:
        raise UsageError("there is no task to evaluate on" + (f": {', '.join(left_out)} cannot run here" if left_out else ""))
