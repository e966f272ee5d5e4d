"""The bookkeeping of the dispatcher: episodes, the rollouts they belong to, and the sessions of workers that play them."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

from palestra.cluster.providers import WorkerHandle
from palestra.cluster.worker import Opened, Setup
from palestra.registry import EnvSpec, spec
from palestra.rollouts import Book, EpisodeKey
from palestra.rollouts.options import book_end
from palestra.trajectory import Trajectory

__all__ = ["AHEAD", "Job", "QueuedEpisode", "WorkerSession"]

AHEAD = 0.25
"""Seconds of work that a worker has leased beyond what it plays, so that it does not idle until the next call."""


class QueuedEpisode:
    """An episode that waits in a queue or is leased to a worker."""

    __slots__ = ("job", "key", "losses", "pool")

    def __init__(self, job: "Job", key: EpisodeKey, pool: int) -> None:
        self.job = job
        self.key = key
        self.pool = pool
        """The index of the pool that plays it."""
        self.losses = 0
        """Workers that were lost while they had this episode."""

    @property
    def id(self) -> tuple[int, int, int]:
        return self.job.number, self.key.group, self.key.member


class Job:
    """One rollout."""

    def __init__(self, number: int, setup: Setup, keys: Iterator[EpisodeKey], book: Book | None) -> None:
        self.number = number
        self.setup = setup
        self.keys = keys
        self.book = book
        self.specs: dict[str, EnvSpec] = {}
        self.under_way = 0
        """Episodes drawn and not yet taken by the consumer."""
        self.finished: deque[tuple[Trajectory, ...]] = deque()
        self.news = asyncio.Event()
        self.exhausted = False
        self.broken: BaseException | None = None

    def draw(self, pool_of: Callable[[str], int]) -> QueuedEpisode | None:
        """The next episode, if there is one and the job may have one more under way.

        Another job's call may draw it. So whatever is wrong with a task, also that no pool plays it, breaks the job that named
        the task, before the episode is counted and issued.
        """
        pool = 0
        if self.exhausted or self.under_way >= self.setup.options.concurrency:
            return None
        try:
            key = next(self.keys, None)
            if key is not None:
                if key.task.env not in self.specs:
                    self.specs[key.task.env] = spec(key.task.env)
                pool = pool_of(key.task.env)
        except Exception as error:  # noqa: BLE001 - of the caller's tasks; raised when the episodes under way have ended
            self.broken, key = error, None
        if key is None:
            self.exhausted = True
            self.news.set()
            return None
        self.under_way += 1
        if self.book is not None:
            self.book.issue(key.name, key.task.env)
        return QueuedEpisode(self, key, pool)

    def end(self, episode: QueuedEpisode, trajectories: tuple[Trajectory, ...]) -> None:
        """Hand the trajectories of ``episode`` to the consumer."""
        book_end(self.book, episode.key, trajectories)
        self.finished.append(trajectories)
        self.news.set()


class WorkerSession:
    """One session of one worker: the episodes it has leased, and the jobs it knows."""

    def __init__(self, handle: WorkerHandle, pool: int, opened: Opened) -> None:
        self.handle = handle
        self.pool = pool
        self.pid = opened.pid
        self.node = opened.node
        self.session = opened.session
        self.name = f"{opened.node}/{opened.pid}/{opened.session}"
        self.leased: dict[tuple[int, int, int], QueuedEpisode] = {}
        self.jobs: dict[int, set[str]] = {}
        """Jobs that the worker knows, with the environments it knows for each."""
        self.assigned = 0
        """Episodes leased to this session so far."""
        self.ended = 0
        self._since = monotonic()
        """When it began to play, moved on by the time that it had nothing to play."""
        self.wake = asyncio.Event()
        """Set when there may be work for the worker, or an answer from it."""

    async def idle(self) -> None:
        """Wait until there may be work. The time does not count in the worker's rate."""
        began = monotonic()
        await self.wake.wait()
        self._since += monotonic() - began

    @property
    def ahead(self) -> int:
        """How many episodes to lease beyond those it plays at once, at the rate it has shown."""
        return max(1, math.ceil(self.ended / max(monotonic() - self._since, 1.0) * AHEAD))
