"""Which tasks to play, and where their environments come from.

The environments that a caller names (ids, patterns, a class, or explicit tasks) become an iterable of tasks and a ``Supply``
that builds an environment for any of them. Light environments are built for one episode and closed after it. Costly ones
(``reusable = True``) are kept, checked for health, and replaced after a number of episodes.
"""

import asyncio
import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from palestra.adapters.workers import InWorker
from palestra.core import AsyncEnv, Env
from palestra.errors import MissingData, UsageError
from palestra.foundation.confidential import mask
from palestra.foundation.encoding import shown
from palestra.foundation.references import reference_of
from palestra.foundation.seeding import derive, derive_seed
from palestra.registry import EnvSpec, WrapperFactory, build, is_pattern, list_envs, spec
from palestra.rollouts.defaults import TASKS_PER_ENV
from palestra.rollouts.driving import EpisodeTask, Overrun, hosted, within
from palestra.trajectory import Task

__all__ = [
    "EPISODES_PER_ENV",
    "Envs",
    "Supply",
    "TaskList",
    "data_digest",
    "data_table",
    "expanded",
    "names_of",
    "row_at",
    "row_count",
    "tasks_of",
]

Envs = str | Sequence[str] | Callable[..., Env | AsyncEnv] | Iterable[Task]
"""Environments to play: an id, several (played in turn), an environment class, or explicit tasks."""

EPISODES_PER_ENV = 100
"""Episodes after which a pooled environment is closed and replaced, because of slow memory leaks."""

STOPPED_PATIENCE = 2.0
"""Seconds that pooled environments have to close after the rollout was cancelled."""


@dataclass(frozen=True)
class TaskList:
    """Explicit tasks with the specs of their environments: an id alone does not say that it is played on a server."""

    tasks: tuple[Task, ...]
    specs: tuple[EnvSpec, ...] = ()

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)


@dataclass
class _Pooled:
    env: AsyncEnv
    episodes: int = 0


class Supply:
    """Environments by task. Use as an async context manager: leaving it closes what is still pooled."""

    def __init__(
        self, wrappers: Sequence[WrapperFactory] = (), specs: Iterable[EnvSpec] = (), *, patience: float = 10.0
    ) -> None:
        self._patience = patience
        self._open = True
        self._wrappers = tuple(wrappers)
        self._specs = {env_spec.id: env_spec for env_spec in specs}
        self._idle: dict[str, list[_Pooled]] = defaultdict(list)
        self._lent: dict[int, _Pooled] = {}

    def know(self, specs: Mapping[str, EnvSpec]) -> None:
        """Use ``specs`` for these names of environments, instead of what this process has registered."""
        self._specs.update(specs)

    async def acquire(self, task: Task) -> AsyncEnv:
        """An environment for ``task``: a healthy pooled one, or a new one."""
        idle = self._idle[task.env]
        while idle:
            pooled = idle.pop()
            if await self._is_fit(pooled.env):
                self._lent[id(pooled.env)] = pooled
                return pooled.env
        env = self._build(task.env)
        if _kind_of(env).reusable:
            self._lent[id(env)] = _Pooled(env)
        return env

    async def give_back(self, task: Task, env: AsyncEnv, *, sound: bool) -> None:
        """Close ``env``, or keep it if it is reusable, sound and not worn out."""
        pooled = self._lent.pop(id(env), None)
        if pooled is not None:
            pooled.episodes += 1
            if sound and self._open and pooled.episodes < EPISODES_PER_ENV:
                self._idle[task.env].append(pooled)
                return
        await env.close()

    async def __aenter__(self) -> "Supply":
        return self

    async def __aexit__(self, stopped: type[BaseException] | None, *_: object) -> None:
        self._open = False
        if stopped is not None:  # a rollout that was cancelled or left
            self._patience = min(self._patience, STOPPED_PATIENCE)
        pooled = list(itertools.chain.from_iterable(self._idle.values()))
        self._idle.clear()
        async with asyncio.TaskGroup() as group:
            for idle in pooled:
                group.create_task(self._retire(idle.env))

    async def _is_fit(self, env: AsyncEnv) -> bool:
        """Whether ``env`` is healthy. If it is not, or if its health check fails, it is closed."""
        fit = False
        try:
            fit = await env.healthy()
        except Exception as error:  # noqa: BLE001 - a stranger's code may raise anything
            warnings.warn(f"a pooled {_kind_of(env).__qualname__} failed its health check: {shown(error)}", stacklevel=2)
        finally:
            if not fit:
                await self._retire(env)
        return fit

    async def _retire(self, env: AsyncEnv) -> None:
        """Close ``env``, which belongs to no episode any more: errors become warnings."""
        try:
            await hosted(_closing(env, self._patience))
        except Overrun:
            warnings.warn(f"closing a pooled {_kind_of(env).__qualname__} took more than {self._patience:g} s", stacklevel=2)
        except BaseException as error:  # a stranger's code may raise anything
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            warnings.warn(f"closing a pooled {_kind_of(env).__qualname__} failed: {shown(error)}", stacklevel=2)

    def _build(self, name: str) -> AsyncEnv:
        if name not in self._specs:
            self._specs[name] = spec(name)
        env = build(self._specs[name], {})
        for wrap in self._wrappers:
            env = wrap(env)
        return env


async def _closing(env: AsyncEnv, seconds: float) -> None:
    async def close() -> None:
        await env.close()

    task = asyncio.current_task()
    assert isinstance(task, EpisodeTask)
    await within(task, seconds, close(), cleanup=True)


def _kind_of(env: AsyncEnv) -> type[Env] | type[AsyncEnv]:
    author = env.unwrapped
    return author.kind if isinstance(author, InWorker) else type(author)


def tasks_of(envs: Envs, n: int | None, seed: int) -> tuple[Iterator[Task], list[EnvSpec]]:
    """The tasks that ``envs`` means, and the specs of the named environments, checked before anything starts.

    ``n`` tasks are drawn of each environment that is named, in turn. A finite environment repeats a task only after all others.
    Of tasks that the caller gives, the first ``n`` are taken, or all.
    """
    if isinstance(envs, TaskList):
        return itertools.islice(envs.tasks, n), list(envs.specs)
    if isinstance(envs, str):
        envs = [envs]
    if callable(envs):
        specs = [_spec_of(envs)]
        return _drawn(specs, n, seed), specs
    items = list(envs) if isinstance(envs, Sequence) else envs
    if isinstance(items, list) and items and all(isinstance(item, str) for item in items):
        specs = [spec(name) for name in names_of(items)]
        for env_spec in specs:
            env_spec.factory()
        _check_one_meaning(specs)
        return _drawn(specs, n, seed), specs
    return itertools.islice(_only_tasks(items), n), []


def names_of(names: Sequence[str]) -> list[str]:
    """``names`` with patterns replaced by the ids they match. Warns of matching ids that cannot run here."""
    chosen, left_out = expanded(names)
    if not chosen:
        raise UsageError(f"no environment can be played: {', '.join(left_out)} cannot run here (palestra list says why)")
    if left_out:
        warnings.warn(f"left out, because they cannot run here (palestra list says why): {', '.join(left_out)}", stacklevel=2)
    return chosen


def expanded(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """``names`` with patterns replaced by the ids they match, and the matching ids that cannot run here."""
    chosen: list[str] = []
    left_out: list[str] = []
    for name in names:
        if not is_pattern(name):
            chosen.append(name)
            continue
        matches = list_envs(name)
        if not matches:
            raise UsageError(f'no environment matches "{name}" (palestra list shows them)')
        for match in matches:
            ids = left_out if match.missing() else chosen
            if match.id not in ids:
                ids.append(match.id)
    return chosen, left_out


def data_digest(env_spec: EnvSpec) -> str:
    """The hash of the rows that the tasks of ``env_spec`` draw from; empty if it has none, or if they are missing."""
    try:
        rows = env_spec.read_rows()
    except MissingData:
        return ""  # the episodes say what is missing
    return "" if rows is None else rows.sha256


def data_table(specs: Iterable[EnvSpec]) -> dict[str, str]:
    """Id → hash of its rows, for the finite environments among ``specs``: what ``config.json`` of a run keeps of its data."""
    return {mask(env_spec.id): digest[:16] for env_spec in specs if (digest := data_digest(env_spec))}


def _check_one_meaning(specs: Iterable[EnvSpec]) -> None:
    """A task names its environment by id, so one rollout cannot play two environments under one id."""
    by_id: dict[str, EnvSpec] = {}
    for env_spec in specs:
        if by_id.setdefault(env_spec.id, env_spec) != env_spec:
            raise UsageError(f'"{env_spec.id}" names two different environments: play them in two rollouts')


def _drawn(specs: Sequence[EnvSpec], n: int | None, seed: int) -> Iterator[Task]:
    count = TASKS_PER_ENV if n is None else n
    sizes = {env_spec.id: row_count(env_spec) for env_spec in specs}
    drawn: Counter[str] = Counter()  # an id named twice is played twice as often, not twice on the same tasks
    ids = (env_spec.id for _ in range(count) for env_spec in specs)
    return (_next_task(id, sizes[id], seed, drawn) for id in ids)


def row_count(env_spec: EnvSpec) -> int | None:
    """The number of tasks of ``env_spec``; ``None`` if they never end, or if the data is missing."""
    try:
        rows = env_spec.read_rows()
    except MissingData:
        return None  # every episode of it fails, and says what is missing
    return None if rows is None else len(rows)


def _next_task(id: str, size: int | None, seed: int, drawn: "Counter[str]") -> Task:
    number = drawn[id]
    drawn[id] += 1
    task_seed = derive_seed(seed, "task", id, number)
    return Task(id, task_seed) if size is None else Task(id, task_seed, index=row_at(range(size), seed, id, number))


def row_at(rows: Sequence[int], seed: int, id: str, number: int) -> int:
    """Return the row of the task ``number``. Rows are played in rounds, each through all of them in another order."""
    return rows[_order(seed, id, number // len(rows), len(rows))[number % len(rows)]]


@lru_cache(maxsize=64)
def _order(seed: int, id: str, round: int, size: int) -> list[int]:
    order: list[int] = derive(seed, "order", id, round).permutation(size).tolist()
    return order


def _only_tasks(items: Iterable[Any]) -> Iterator[Task]:
    for item in items:
        if not isinstance(item, Task):
            raise UsageError(f"expected ids or Tasks to play, got a {type(item).__name__}")
        yield item


def _spec_of(factory: Callable[..., Env | AsyncEnv]) -> EnvSpec:
    try:
        name = reference_of(factory)
    except UsageError:
        # A lambda or a class inside a function works in this process only; a blocking one raises an error with the reason.
        name = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__qualname__)}"
    return EnvSpec(id=name, entry=factory, family=name.rpartition(":")[2])
