"""Many episodes at once, without barriers: each is one asyncio task, and its trajectory is handed over when it ends.

Whenever an episode ends the next one starts, so a slow episode does not delay the others. A slow consumer is not overrun: no
episode starts while ``concurrency`` finished ones wait to be taken. Leaving the iteration, by ``break``, an exception or
cancellation, cancels the running episodes and waits until every environment has been given back.
"""

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from palestra.adapters.interrupts import interrupts
from palestra.adapters.workers import WorkerPool
from palestra.errors import Boundary
from palestra.foundation.resources.descriptors import raise_descriptor_limit
from palestra.policies import as_policy
from palestra.registry import EnvSpec
from palestra.rollouts.driving import ConsumerWait, EpisodeTask, let_the_loop_end
from palestra.rollouts.episode import CLEAN_UP_SHARE, EpisodeKey, Players, run_episode
from palestra.rollouts.options import AnyPolicy, Book, EpisodeLimit, RolloutOptions, book_end
from palestra.rollouts.supply import Envs, Supply, tasks_of
from palestra.rollouts.watchdog import watched
from palestra.trajectory import Failure, Phase, StopReason, Task, Trajectory

__all__ = ["EpisodeRunner", "episode_keys", "play_episodes"]


async def play_episodes(
    envs: Envs, policy: AnyPolicy, options: RolloutOptions, *, book: Book | None = None
) -> AsyncGenerator[Trajectory, None]:
    """``rollout`` with its settings in one object; starts and ends of episodes are entered into ``book``."""
    keys, specs = episode_keys(envs, options)
    async with EpisodeRunner(policy, options, specs) as runner:
        running = _Running(keys, runner.play, options, book)
        with interrupts.heard(running.interrupt):
            try:
                while (trajectories := await running.next()) is not None:
                    for trajectory in trajectories:
                        yield trajectory
            finally:
                await running.cancel()


def episode_keys(envs: Envs, options: RolloutOptions) -> tuple[Iterator[EpisodeKey], list[EnvSpec]]:
    """The episodes that a rollout with these options consists of, and the specs of the environments it names."""
    tasks, specs = tasks_of(envs, options.n, options.seed)
    return _keys(tasks, options), specs


def _keys(tasks: Iterable[Task], options: RolloutOptions) -> Iterator[EpisodeKey]:
    for group, task in enumerate(tasks, options.first_group):
        for member in range(options.group_size):
            if (group, member) not in options.skip:
                yield EpisodeKey(task, options.seed, group, member)


class EpisodeRunner:
    """Plays single episodes: the players, a supply of environments, and the rule for retries.

    Use as an async context manager. Of ``options`` it uses those that concern a single episode.
    """

    def __init__(self, policy: AnyPolicy, options: RolloutOptions, specs: Iterable[EnvSpec] = ()) -> None:
        self._options = options
        self._players = options.seating or _players(policy)
        self._supply = Supply(options.around(), specs, patience=options.deadline * CLEAN_UP_SHARE)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "EpisodeRunner":
        raise_descriptor_limit()
        self._stack.enter_context(watched())
        await self._stack.enter_async_context(WorkerPool.held())
        await self._stack.enter_async_context(self._supply)
        return self

    async def __aexit__(self, *error: Any) -> None:
        try:
            await self._stack.__aexit__(*error)
        finally:
            let_the_loop_end()

    def know(self, specs: Mapping[str, EnvSpec]) -> None:
        """Use ``specs`` for these names of environments, instead of what this process has registered."""
        self._supply.know(specs)

    def play(self, key: EpisodeKey) -> Coroutine[Any, Any, tuple[Trajectory, ...]]:
        """Play the episode ``key``, again if infrastructure failed, and keep every failure on the record."""
        options = self._options
        return run_episode(
            self._supply,
            self._players,
            key,
            deadline=options.deadline,
            cut_as_invalid=options.cut_as_invalid,
            retries=options.retries,
        )


def _players(policy: AnyPolicy) -> Players:
    if isinstance(policy, Mapping):
        return {player: as_policy(seated) for player, seated in policy.items()}
    return as_policy(policy)


class _Running:
    """The episodes under way, the finished ones not taken yet, and the rule for starting the next."""

    def __init__(
        self,
        keys: Iterator[EpisodeKey],
        play: Callable[[EpisodeKey], Coroutine[Any, Any, tuple[Trajectory, ...]]],
        options: RolloutOptions,
        book: Book | None,
    ) -> None:
        self._keys = keys
        self._play = play
        self._concurrency = options.concurrency
        self._limit = options.shared_limit or EpisodeLimit(options.concurrency)
        self._book = book
        self._tasks: dict[asyncio.Task[tuple[Trajectory, ...]], EpisodeKey] = {}
        self._finished: deque[tuple[EpisodeKey, asyncio.Task[tuple[Trajectory, ...]]]] = deque()
        self._news: ConsumerWait | None = None
        self._exhausted = False
        self._broken: BaseException | None = None
        """The exception of the caller's iterable of tasks. It is raised again when the episodes already begun have ended."""
        self._interrupt: KeyboardInterrupt | None = None
        # One bound method and one context for all tasks, which otherwise have one each.
        self._on_end, self._context = self._ended, contextvars.copy_context()

    async def next(self) -> tuple[Trajectory, ...] | None:
        """The trajectories of the next episode that ends; ``None`` after the last one."""
        while True:
            self._start()
            if self._interrupt is not None:
                raise self._interrupt
            if self._finished:
                break
            if self._exhausted and not self._tasks:
                if self._broken is not None:
                    raise self._broken
                return None
            # Without tasks of its own, it waits for a place: other rollouts may have taken all of them.
            self._news = ConsumerWait()
            await self._news.over()
        key, task = self._finished.popleft()
        if task.cancelled():
            trajectories = _cancelled(key)
            book_end(self._book, key, trajectories)
            return trajectories
        return task.result()  # no episode raises: this would be a bug of ours

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Raise ``error`` in the consumer. Whatever code it interrupted may have caught it."""
        self._interrupt = error
        self._wake()

    async def cancel(self) -> None:
        """Cancel the running episodes and wait until they have cleaned up."""
        self._exhausted = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _start(self) -> None:
        while not self._exhausted and len(self._tasks) < self._concurrency and len(self._finished) < self._concurrency:
            if not self._limit.take(self._start):
                return
            try:
                key = next(self._keys, None)
            except Exception as error:  # noqa: BLE001 - of the caller's tasks; raised when the episodes under way have ended
                self._broken, key = error, None
            if key is None:
                self._exhausted = True
                self._wake()  # a free place may have come when no episode was left to end and say so
                self._limit.give_back()
                return
            if self._book is not None:
                self._book.issue(key.name, key.task.env)
                self._book.lease(key.name, str(os.getpid()))
            task = EpisodeTask(self._play(key))
            self._tasks[task] = key
            task.add_done_callback(self._on_end, context=self._context)

    def _ended(self, task: "asyncio.Task[tuple[Trajectory, ...]]") -> None:
        key = self._tasks.pop(task)
        self._limit.give_back()
        self._finished.append((key, task))
        if not task.cancelled() and task.exception() is None:
            book_end(self._book, key, task.result())
        self._wake()
        self._start()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _cancelled(key: EpisodeKey) -> tuple[Trajectory, ...]:
    """The record of an episode that neither its own code nor this rollout cancelled, but the caller's."""
    message = "the task of this episode was cancelled by code outside of the rollout"
    failure = Failure(Boundary.INFRASTRUCTURE, Phase.STEP, "CancelledError", message, key.attempt)
    return (
        Trajectory(
            key.task,
            StopReason.ERROR,
            failures=(failure,),
            seed=key.seed,
            group=key.group,
            member=key.member,
            attempt=key.attempt,
        ),
    )
