"""Driver side: leases episodes to workers, plays the episodes of lost workers again, and limits what is under way.

An episode is leased to one worker at a time. A result counts only if it comes from the session that holds the lease, so no
episode is counted twice. When a worker is lost, its episodes go to the front of the queue. The key of an episode fixes every
random choice, so the replay is the same episode, and only time is lost. An episode whose workers keep dying is played alone, to
spare its neighbors, and after a few more deaths it is recorded as an infrastructure failure.

A job never has more than ``concurrency`` episodes drawn, leased, or finished and not yet taken, so a slow consumer is not
overrun. Each worker leases its fair share of them: at most the number it plays at once, plus a few to start next.

Several jobs can run at once on the same workers, for example the groups that a trainer plays ahead.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from typing import Any

from palestra.cluster.config import ClusterConfig, Pool
from palestra.cluster.jobs import Job, QueuedEpisode, WorkerSession
from palestra.cluster.providers import Lost, WorkerHandle, WorkerProvider
from palestra.cluster.worker import JobOrders, Lease, PlayedLease, Setup, StaleSession, decode_batch
from palestra.errors import Boundary, UsageError
from palestra.foundation.encoding import encode_msgpack
from palestra.registry import EnvSpec
from palestra.rollouts import AnyPolicy, Book, Envs, RolloutOptions, episode_keys
from palestra.trajectory import Failure, Phase, StopReason, Trajectory

__all__ = ["Dispatcher"]

HEARTBEAT = 2.0
"""Seconds after which a worker answers even if no episode has ended."""
CENSUS = 2.0
"""Seconds between two counts of how many workers fit."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before a lost worker is contacted again: doubled each time, up to the second value."""
ALONE_AFTER, GIVEN_UP_AFTER = 3, 8
"""Losses of its workers after which an episode is played alone, and after which it counts as failed."""


class Dispatcher:
    """Plays rollouts on the workers of a provider. Use as an async context manager."""

    def __init__(self, provider: WorkerProvider, config: ClusterConfig | None = None) -> None:
        self.provider = provider
        self.config = config or ClusterConfig()
        self.deaths = 0
        """Sessions lost so far."""
        self.workers: set[str] = set()
        """The names of all sessions so far."""
        self._jobs: dict[int, Job] = {}
        self._numbers = itertools.count()
        self._queues: list[deque[QueuedEpisode]] = [deque() for _ in self.config.pools]
        self._sessions: set[WorkerSession] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    async def __aenter__(self) -> "Dispatcher":
        await self.provider.__aenter__()
        self._spawn(self._census())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.provider.__aexit__()

    async def rollout(
        self, envs: Envs, policy: AnyPolicy, options: RolloutOptions, *, book: Book | None = None
    ) -> AsyncGenerator[Trajectory, None]:
        """Play a rollout on the workers: a ``RolloutFunction``. Leases, losses and ends are entered into ``book``."""
        if options.seating is not None:
            raise UsageError("a cluster cannot choose the policies of players by the episode: play in one process")
        keys, specs = episode_keys(envs, options)
        options.around()  # refuses an unknown name here, not on a worker
        if self._broken is not None:
            raise self._broken
        # ``skip`` stays here: only the driver draws episodes, and it may be large. A pool has a limit of its own.
        job = Job(next(self._numbers), Setup(policy, replace(options, skip=(), shared_limit=None)), keys, book)
        job.specs = {spec.id: spec for spec in specs}
        self._jobs[job.number] = job
        try:
            while True:
                self._draw()
                if not job.finished:
                    if job.exhausted and not job.under_way:
                        break
                    job.news.clear()
                    await job.news.wait()
                    continue
                trajectories = job.finished.popleft()
                job.under_way -= 1
                for trajectory in trajectories:
                    yield trajectory
        finally:
            del self._jobs[job.number]
            self._forget(job)
        if job.broken is not None:
            raise job.broken

    # --------------------------------------------------------------------------------------------------------------- queues

    def _draw(self) -> None:
        """Fill the queues as far as the jobs allow, and wake the workers that wait."""
        drawn = False
        for job in self._jobs.values():
            while episode := job.draw(self.config.pool_of):
                self._queues[episode.pool].append(episode)
                drawn = True
        if drawn:
            self._wake_workers()

    def _wake_workers(self) -> None:
        for worker in self._sessions:
            worker.wake.set()

    def _forget(self, job: Job) -> None:
        for queue in self._queues:
            kept = [episode for episode in queue if episode.job is not job]
            queue.clear()
            queue.extend(kept)
        self._wake_workers()  # idle ones, too, have to end the job

    def _lease(self, worker: WorkerSession) -> list[QueuedEpisode]:
        """Take the episodes that ``worker`` gets now from its queue."""
        queue = self._queues[worker.pool]
        leases: list[QueuedEpisode] = []
        for _ in range(self._room(worker)):
            if not queue or (leases and queue[0].losses >= ALONE_AFTER):
                break
            leases.append(queue.popleft())
        return leases

    def _room(self, worker: WorkerSession) -> int:
        """How many more episodes ``worker`` may lease."""
        pool, queue = self.config.pools[worker.pool], self._queues[worker.pool]
        if not queue or any(episode.losses >= ALONE_AFTER for episode in worker.leased.values()):
            return 0
        if queue[0].losses >= ALONE_AFTER:
            return int(not worker.leased)
        room = self._share(worker, pool) - len(worker.leased)
        return min(room, pool.episodes_per_worker - worker.assigned) if pool.episodes_per_worker else room

    def _share(self, worker: WorkerSession, pool: Pool) -> int:
        """How many episodes ``worker`` may have: its fair share of all, and no more than it can start soon."""
        workers = [other for other in self._sessions if other.pool == worker.pool]
        there_is = len(self._queues[worker.pool]) + sum(len(other.leased) for other in workers)
        return min(pool.concurrency + worker.ahead, math.ceil(there_is / len(workers)))

    # -------------------------------------------------------------------------------------------------------------- workers

    async def _census(self) -> None:
        """Start as many workers as fit, and count again regularly: nodes come and go."""
        started = [0] * len(self.config.pools)
        while True:
            for number, pool in enumerate(self.config.pools):
                wanted = await self.provider.room(pool) if pool.workers is None else pool.workers
                for _ in range(wanted - started[number]):
                    self._spawn(self._run_worker(self.provider.start(pool), number))
                started[number] = max(wanted, started[number])
            await asyncio.sleep(CENSUS)

    async def _run_worker(self, handle: WorkerHandle, pool: int) -> None:
        """Assign episodes to one worker, over as many sessions as it takes."""
        pause = FIRST_PAUSE
        while True:
            worker: WorkerSession | None = None
            try:
                opened = await handle.open()
                worker = WorkerSession(handle, pool, opened)
                self.workers.add(worker.name)
                self._sessions.add(worker)
                pause = FIRST_PAUSE
                await self._exchange_leases(worker)
                await handle.replace()  # worn out
            except (Lost, StaleSession) as error:
                if worker is not None:
                    self.deaths += 1
                    self._take_back(worker, str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            finally:
                if worker is not None:
                    self._sessions.discard(worker)
            self._wake_workers()

    async def _exchange_leases(self, worker: WorkerSession) -> None:
        """Exchange leases for results until the worker is worn out or lost."""
        wear = self.config.pools[worker.pool].episodes_per_worker
        while not (wear and worker.assigned >= wear and not worker.leased):
            worker.wake.clear()
            if not worker.leased and self._room(worker) <= 0:
                if worker.jobs.keys() <= self._jobs.keys():
                    await worker.idle()
                else:
                    await self._exchange(worker, 0.0)
                continue
            waiting = asyncio.create_task(self._exchange(worker, HEARTBEAT))
            waiting.add_done_callback(lambda _: worker.wake.set())
            try:
                while not waiting.done():
                    await worker.wake.wait()
                    worker.wake.clear()
                    if not waiting.done() and self._room(worker) > 0:
                        await self._exchange(worker, 0.0)
                await waiting
            finally:
                if waiting.cancel():
                    await asyncio.wait([waiting])

    async def _exchange(self, worker: WorkerSession, wait: float) -> None:
        orders = self._orders(worker, wait)
        patience = self.config.pools[worker.pool].patience
        try:
            async with asyncio.timeout(wait + patience):
                batch = decode_batch(await worker.handle.exchange(worker.session, orders))
        except TimeoutError:
            await worker.handle.replace()
            raise Lost(f"no answer within {wait + patience:g} s") from None
        for played in batch:
            self._accept(worker, played)
        if batch:
            self._draw()

    def _orders(self, worker: WorkerSession, wait: float) -> JobOrders:
        leased = self._lease(worker)
        begin: dict[int, Setup] = {}
        specs: dict[int, dict[str, EnvSpec]] = {}
        for episode in leased:
            worker.leased[episode.id] = episode
            job, env = episode.job, episode.key.task.env
            if job.number not in worker.jobs:
                begin[job.number], worker.jobs[job.number] = job.setup, set()
            if env not in worker.jobs[job.number]:
                worker.jobs[job.number].add(env)
                specs.setdefault(job.number, {})[env] = job.specs[env]
            if job.book is not None:
                job.book.lease(episode.key.name, worker.name, episode.key.attempt)
        worker.assigned += len(leased)
        ended = tuple(job for job in worker.jobs if job not in self._jobs)
        for number in ended:
            del worker.jobs[number]
        worker.leased = {key: episode for key, episode in worker.leased.items() if key[0] not in ended}
        leases = encode_msgpack([Lease(episode.job.number, episode.key) for episode in leased]) if leased else b""
        return JobOrders(leases, begin, specs, ended, wait)

    def _accept(self, worker: WorkerSession, played: PlayedLease) -> None:
        worker.ended += 1
        episode = worker.leased.pop((played.job, played.group, played.member), None)
        if episode is not None:  # else its job has ended
            episode.job.end(episode, played.trajectories)

    def _take_back(self, worker: WorkerSession, why: str) -> None:
        """Queue the episodes of a lost worker first, or record those as failed whose workers keep dying."""
        for episode in reversed(worker.leased.values()):
            if episode.job.number not in self._jobs:
                continue
            episode.losses += 1
            if episode.losses >= GIVEN_UP_AFTER:
                episode.job.end(episode, (_given_up(episode, why),))
                continue
            if episode.job.book is not None:
                episode.job.book.fail(episode.key.name, "WorkerLost", episode.key.attempt, again=True)
            self._queues[worker.pool].appendleft(episode)
        worker.leased.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._stopped)

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """End every job with the error: these tasks only stop because of a bug here or in the caller's code."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._broken = error
        for job in self._jobs.values():
            job.broken, job.exhausted, job.under_way = error, True, len(job.finished)
            job.news.set()


def _given_up(episode: QueuedEpisode, why: str) -> Trajectory:
    key = episode.key
    message = f"{episode.losses} workers died while they played this episode, the last of them nothing else: {why}"
    failure = Failure(Boundary.INFRASTRUCTURE, Phase.STEP, "WorkerLost", message, key.attempt)
    return Trajectory(
        task=key.task,
        stop=StopReason.ERROR,
        failures=(failure,),
        seed=key.seed,
        group=key.group,
        member=key.member,
        attempt=key.attempt,
    )
