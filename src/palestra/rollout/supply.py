"""Which tasks to play, and where their environments come from.

Whatever a caller names as environments (an id, several, a class, or tasks of their own) becomes an iterable of tasks and a
``Supply`` that builds an environment for any of them. Light environments are built for one episode and closed after it.
Costly ones (``reusable = True``) are kept, checked for health, and replaced after a number of episodes.
"""

import asyncio
import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.core import AsyncEnv, Env
from palestra.errors import UsageError
from palestra.references import reference_of
from palestra.registry import EnvSpec, WrapperFactory, build, spec
from palestra.seeding import derive_seed
from palestra.trajectory import Task
from palestra.views import InWorker

__all__ = ["EPISODES_PER_ENV", "Envs", "Supply", "tasks_of"]

Envs = str | Sequence[str] | Callable[..., Env | AsyncEnv] | Iterable[Task]
"""What to play: an id, several (played in turn), an environment class, or the very tasks."""

EPISODES_PER_ENV = 100
"""After this many episodes a pooled environment is closed and built anew, against slow leaks."""


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
        self._specs = {known.id: known for known in specs}
        self._idle: dict[str, list[_Pooled]] = defaultdict(list)
        self._lent: dict[int, _Pooled] = {}

    def know(self, specs: Mapping[str, EnvSpec]) -> None:
        """What the names of environments in tasks mean, where that is not what this process has registered."""
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

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        pooled = list(itertools.chain.from_iterable(self._idle.values()))
        self._idle.clear()
        async with asyncio.TaskGroup() as group:
            for one in pooled:
                group.create_task(self._retire(one.env))

    async def _is_fit(self, env: AsyncEnv) -> bool:
        """Whether ``env`` can be lent again. One that cannot, or could not be asked, is closed."""
        fit = False
        try:
            fit = await env.healthy()
        except Exception as error:
            warnings.warn(f"a pooled {_kind_of(env).__qualname__} failed its health check: {error!r}", stacklevel=2)
        finally:
            if not fit:
                await self._retire(env)
        return fit

    async def _retire(self, env: AsyncEnv) -> None:
        """Close ``env``, which belongs to no episode any more: what goes wrong here can only be told."""
        try:
            async with asyncio.timeout(self._patience):
                await env.close()
        except (Exception, SystemExit) as error:
            warnings.warn(f"closing a pooled {_kind_of(env).__qualname__} failed: {error!r}", stacklevel=2)

    def _build(self, name: str) -> AsyncEnv:
        known = self._specs.get(name)
        if known is None:
            known = self._specs[name] = spec(name)
        env = build(known, {})
        for wrap in (*known.wrappers, *self._wrappers):
            env = wrap(env)
        return env


def _kind_of(env: AsyncEnv) -> type[Env] | type[AsyncEnv]:
    own = env.unwrapped
    return own.kind if isinstance(own, InWorker) else type(own)


def tasks_of(envs: Envs, n: int | None, seed: int) -> tuple[Iterator[Task], list[EnvSpec]]:
    """The tasks that ``envs`` means, and the specs of the environments named, checked before anything starts.

    ``n`` tasks are drawn from ids and classes, in turn; of tasks given by the caller, the first ``n`` (all of them by default).
    """
    if isinstance(envs, str):
        envs = [envs]
    if callable(envs):
        known = _spec_of(envs)
        return _drawn([known.id], n, seed), [known]
    items = list(envs) if isinstance(envs, Sequence) else envs
    if isinstance(items, list) and items and all(isinstance(item, str) for item in items):
        specs = [spec(str(item)) for item in items]
        for known in specs:
            known.factory()
        return _drawn([known.id for known in specs], n, seed), specs
    return itertools.islice(_only_tasks(items), n), []


def _drawn(ids: Sequence[str], n: int | None, seed: int) -> Iterator[Task]:
    if n is None:
        raise UsageError("say how many tasks to draw: n=…")
    drawn: Counter[str] = Counter()  # an id named twice is played twice as often, not twice on the same tasks
    return (Task(id, derive_seed(seed, "task", id, _count(drawn, id))) for id in itertools.islice(itertools.cycle(ids), n))


def _count(drawn: "Counter[str]", id: str) -> int:
    drawn[id] += 1
    return drawn[id] - 1


def _only_tasks(items: Iterable[Any]) -> Iterator[Task]:
    for item in items:
        if not isinstance(item, Task):
            raise UsageError(f"expected ids or Tasks to play, got a {type(item).__name__}")
        yield item


def _spec_of(factory: Callable[..., Env | AsyncEnv]) -> EnvSpec:
    try:
        name = reference_of(factory)
    except UsageError:
        # A class inside a function or a lambda: good for this process; a blocking one will say why it cannot be sent away.
        name = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__qualname__)}"
    return EnvSpec(id=name, entry=factory, family=name.rpartition(":")[2])
