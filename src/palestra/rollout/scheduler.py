"""Many episodes at once, without barriers: each is one asyncio task, and each is handed over when it ends.

Whenever an episode ends the next one starts, so a slow one holds up nobody. A consumer that falls behind is not overrun: no
episode starts while ``concurrency`` finished ones wait to be taken. Leaving the iteration, by ``break``, an exception or
cancellation, cancels what is running and waits until every environment has been given back.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from palestra.core import Policy
from palestra.errors import Boundary, UsageError
from palestra.policies import as_policy
from palestra.registry import EnvSpec, WrapperFactory
from palestra.rollout.episode import CLEAN_UP_SHARE, Players, Ticket, run_episode
from palestra.rollout.supply import Envs, Supply, tasks_of
from palestra.trajectory import Failure, Task, Trajectory
from palestra.views import WorkerPool
from palestra.wrappers import TurnLimit

__all__ = ["AnyPolicy", "Rollout", "RolloutOptions", "Stage", "rollout", "tickets_of"]

AnyPolicy = Policy | Callable[[str], Any] | str | Mapping[str, Policy | Callable[[str], Any] | str]
"""A policy, a function of text, ``"random"`` or ``"oracle"``; or one of these for each player."""

FIRST_PAUSE = 0.1
"""Seconds before an episode that failed for reasons of infrastructure is tried again; doubled each time."""


class RolloutOptions(TypedDict, total=False):
    """How to run. Every one is optional."""

    n: int | None
    """How many tasks."""
    group_size: int
    """How many episodes of each task. They share a group number."""
    concurrency: int
    """How many episodes at once."""
    seed: int
    """From which tasks and every random choice are derived."""
    deadline: float
    """Seconds for one episode, from boot to clean-up."""
    max_turns: int | None
    """The horizon: episodes are truncated after this many actions."""
    retries: int
    """How often an episode is tried again after a failure of infrastructure."""
    wrappers: Sequence[WrapperFactory]
    """Wrappers for every environment, innermost first."""
    skip: Container[tuple[int, int]]
    """Episodes, as (group, member), that need not be played: a run that goes on has them already. Asked just before each."""


class Rollout(Protocol):
    """Whoever plays episodes: ``rollout`` here, in this process; a crew of workers elsewhere."""

    def __call__(
        self, envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> AsyncGenerator[Trajectory, None]: ...


@dataclass(frozen=True, kw_only=True)
class _Settings:
    n: int | None = None
    group_size: int = 1
    concurrency: int = 512
    seed: int = 0
    deadline: float = 60.0
    max_turns: int | None = None
    retries: int = 2
    wrappers: Sequence[WrapperFactory] = ()
    skip: Container[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        for name in ("group_size", "concurrency"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.deadline <= 0:
            raise UsageError(f"deadline must be positive, got {self.deadline}")


class Stage:
    """Where episodes are played: the players, a supply of environments, and the rule for trying again.

    Use as an async context manager. ``options`` are those of ``rollout`` as far as they concern a single episode.
    """

    def __init__(self, policy: AnyPolicy, specs: Iterable[EnvSpec] = (), **options: Unpack[RolloutOptions]) -> None:
        self._settings = settings = _Settings(**options)
        horizon = () if settings.max_turns is None else (partial(TurnLimit, turns=settings.max_turns),)
        self._players = _players(policy)
        self._supply = Supply((*settings.wrappers, *horizon), specs, patience=settings.deadline * CLEAN_UP_SHARE)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Stage":
        await self._stack.enter_async_context(WorkerPool.held())
        await self._stack.enter_async_context(self._supply)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def know(self, specs: Mapping[str, EnvSpec]) -> None:
        """What the names of environments in tickets mean, where that is not what this process has registered."""
        self._supply.know(specs)

    async def play(self, ticket: Ticket) -> tuple[Trajectory, ...]:
        """Play ``ticket``, again if infrastructure failed, and keep every failure on the record."""
        settings = self._settings
        earlier: tuple[Failure, ...] = ()
        while True:
            trajectories = await run_episode(self._supply, self._players, ticket, deadline=settings.deadline)
            first = trajectories[0]
            if (
                not (first.stop.failed and first.failures[0].boundary is Boundary.INFRASTRUCTURE)
                or ticket.attempt >= settings.retries
            ):
                break
            earlier += first.failures
            await asyncio.sleep(FIRST_PAUSE * 2**ticket.attempt)
            ticket = replace(ticket, attempt=ticket.attempt + 1)
        if not earlier:
            return trajectories
        return tuple(msgspec.structs.replace(one, failures=earlier + one.failures) for one in trajectories)


async def rollout(envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutOptions]) -> AsyncGenerator[Trajectory, None]:
    """Play episodes and yield each trajectory as its episode ends.

    ``n`` tasks are played ``group_size`` times each. An episode of several players yields one trajectory for each of them.
    """
    tickets, specs = tickets_of(envs, **options)
    async with Stage(policy, specs, **options) as stage:
        running = _Running(tickets, stage.play, _Settings(**options).concurrency)
        try:
            async with aclosing(running.results()) as results:
                async for trajectory in results:
                    yield trajectory
        finally:
            await running.cancel()


def tickets_of(envs: Envs, **options: Unpack[RolloutOptions]) -> tuple[Iterator[Ticket], list[EnvSpec]]:
    """The episodes that a rollout with these options consists of, and the specs of the environments it names."""
    settings = _Settings(**options)
    tasks, specs = tasks_of(envs, settings.n, settings.seed)
    return _tickets(tasks, settings), specs


def _players(policy: AnyPolicy) -> Players:
    if isinstance(policy, Mapping):
        return {player: as_policy(one) for player, one in policy.items()}
    return as_policy(policy)


def _tickets(tasks: Iterable[Task], settings: _Settings) -> Iterator[Ticket]:
    for group, task in enumerate(tasks):
        for member in range(settings.group_size):
            if (group, member) not in settings.skip:
                yield Ticket(task, settings.seed, group, member)


class _Running:
    """The episodes under way, the finished ones not taken yet, and the rule for starting the next."""

    def __init__(
        self,
        tickets: Iterator[Ticket],
        run: Callable[[Ticket], Any],
        concurrency: int,
    ) -> None:
        self._tickets = tickets
        self._run = run
        self._concurrency = concurrency
        self._tasks: set[asyncio.Task[tuple[Trajectory, ...]]] = set()
        self._finished: deque[asyncio.Task[tuple[Trajectory, ...]]] = deque()
        self._news = asyncio.Event()
        self._exhausted = False
        self._broken: Exception | None = None
        """What the caller's iterable of tasks raised. It is raised again when the episodes already begun have ended."""

    async def results(self) -> AsyncGenerator[Trajectory, None]:
        while True:
            self._start()
            if not self._finished:
                if not self._tasks:
                    break
                self._news.clear()
                await self._news.wait()
                continue  # to look again: the news may be that somebody cancelled an episode
            # result() raises what no episode may raise: a bug of ours, or an interrupt. Then everything stops.
            for trajectory in self._finished.popleft().result():
                yield trajectory
        if self._broken is not None:
            raise self._broken

    async def cancel(self) -> None:
        """Cancel what is running and wait until it has cleaned up."""
        self._exhausted = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        while not self._exhausted and len(self._tasks) < self._concurrency and len(self._finished) < self._concurrency:
            try:
                ticket = next(self._tickets, None)
            except Exception as error:
                self._broken, ticket = error, None
            if ticket is None:
                self._exhausted = True
                return
            task = asyncio.create_task(self._run(ticket))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[tuple[Trajectory, ...]]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._finished.append(task)
        self._news.set()
        self._start()
