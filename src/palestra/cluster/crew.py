"""The near side: who is given which episode, what becomes of those whose worker is lost, and when to wait.

An episode is leased to one worker at a time. Its result counts if it comes from the session that holds the lease, and from
nobody else, so nothing is counted twice. When a worker is lost, whatever it held goes to the front of the queue; a ticket fixes
every random choice, so it is the same episode that is played again, and nothing is lost but time. An episode whose workers keep
dying is played alone, to spare its neighbours, and given up after a few deaths: a failure of infrastructure, on the record.

Of one job no more than ``concurrency`` episodes are drawn, leased or finished and not yet taken: a consumer that falls behind
is not overrun. Each worker holds its fair share of them, and no more than it plays at once and a few to go on with.

Several jobs may run at once on the same workers: the waves of a trainer do.
"""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterator
from time import monotonic
from typing import Any, Protocol, Unpack

from palestra.cluster.config import ClusterConfig, Pool
from palestra.cluster.fleet import Fleet, Hand, Lost
from palestra.cluster.worker import Lease, Opened, Orders, Played, Setup, StaleSession, decode_batch
from palestra.encoding import encode_msgpack
from palestra.errors import Boundary
from palestra.registry import EnvSpec, spec
from palestra.rollout import AnyPolicy, Envs, RolloutOptions, Ticket, tickets_of
from palestra.trajectory import Failure, Phase, StopReason, Trajectory

__all__ = ["Book", "Crew"]

HEARTBEAT = 2.0
"""Seconds after which a worker answers even if nothing has ended."""
CENSUS = 2.0
"""Seconds between two looks at how many workers fit."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before a lost worker is asked again: doubled each time, up to the second."""
ALONE_AFTER, GIVEN_UP_AFTER = 3, 8
"""Deaths of its workers after which an episode is played alone, and after which it has failed."""
AHEAD = 0.25
"""Seconds of work that a worker holds beside what it plays, so that it need not wait for the next call."""
CONCURRENCY = 512


class Book(Protocol):
    """Where it is written down who has what. ``training.ledger.Ledger`` is one."""

    def issue(self, rollout: str, task: str = "") -> None: ...
    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None: ...
    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None: ...
    def finish(self, rollout: str) -> None: ...


class _Held:
    """An episode that is to be played, or is being played."""

    __slots__ = ("job", "losses", "ticket")

    def __init__(self, job: "_Job", ticket: Ticket) -> None:
        self.job = job
        self.ticket = ticket
        self.losses = 0

    @property
    def key(self) -> tuple[int, int, int]:
        return self.job.number, self.ticket.group, self.ticket.member

    @property
    def name(self) -> str:
        return f"{self.ticket.group}.{self.ticket.member}"


class _Job:
    """One rollout."""

    def __init__(self, number: int, setup: Setup, tickets: Iterator[Ticket], book: Book | None) -> None:
        self.number = number
        self.setup = setup
        self.tickets = tickets
        self.book = book
        self.specs: dict[str, EnvSpec] = {}
        self.concurrency = setup.options.get("concurrency", CONCURRENCY)
        self.under_way = 0
        """Drawn and not yet taken by the consumer."""
        self.finished: deque[tuple[Trajectory, ...]] = deque()
        self.news = asyncio.Event()
        self.exhausted = False
        self.broken: BaseException | None = None

    def draw(self) -> _Held | None:
        """The next episode, if there is one and the job may have one more under way."""
        if self.exhausted or self.under_way >= self.concurrency:
            return None
        try:
            ticket = next(self.tickets, None)
            if ticket is not None and ticket.task.env not in self.specs:
                self.specs[ticket.task.env] = spec(ticket.task.env)
        except Exception as error:  # the caller's tasks; told when what is under way has ended
            self.broken, ticket = error, None
        if ticket is None:
            self.exhausted = True
            self.news.set()
            return None
        self.under_way += 1
        held = _Held(self, ticket)
        if self.book is not None:
            self.book.issue(held.name, ticket.task.env)
        return held

    def end(self, held: _Held, trajectories: tuple[Trajectory, ...]) -> None:
        first = trajectories[0]
        if self.book is not None and first.stop.failed:
            self.book.fail(held.name, first.failures[-1].kind, first.attempt)
        elif self.book is not None:
            self.book.finish(held.name)
        self.finished.append(trajectories)
        self.news.set()


class _Employed:
    """One session of one worker: what it holds and has heard of."""

    def __init__(self, hand: Hand, pool: int, opened: Opened) -> None:
        self.hand = hand
        self.pool = pool
        self.pid = opened.pid
        self.place = opened.place
        self.session = opened.session
        self.name = f"{opened.place}/{opened.pid}/{opened.session}"
        self.holds: dict[tuple[int, int, int], _Held] = {}
        self.jobs: dict[int, set[str]] = {}
        """Jobs it has heard of, with the environments it has heard of for each."""
        self.given = 0
        self.ended = 0
        self.since = monotonic()
        self.wake = asyncio.Event()
        """Set when there may be work for it, or an answer of it."""

    @property
    def ahead(self) -> int:
        """How many episodes more than it plays at once it holds, at the pace it has shown."""
        return max(1, math.ceil(self.ended / max(monotonic() - self.since, 1.0) * AHEAD))


class Crew:
    """Workers of a fleet, and the jobs they do. Use as an async context manager; ``rollout`` then is a ``Rollout``."""

    def __init__(self, fleet: Fleet, config: ClusterConfig | None = None) -> None:
        self.fleet = fleet
        self.config = config or ClusterConfig()
        self.deaths = 0
        """Sessions lost so far."""
        self.workers: set[str] = set()
        """Everybody who ever opened a session."""
        self._jobs: dict[int, _Job] = {}
        self._numbers = itertools.count()
        self._queues: list[deque[_Held]] = [deque() for _ in self.config.pools]
        self._employed: set[_Employed] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    async def __aenter__(self) -> "Crew":
        await self.fleet.__aenter__()
        self._spawn(self._census())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.fleet.__aexit__()

    def rollout(self, envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutOptions]) -> AsyncGenerator[Trajectory, None]:
        """``palestra.rollout``, played by the crew."""
        return self.booked(None, envs, policy, **options)

    async def booked(
        self, book: Book | None, envs: Envs, policy: AnyPolicy, **options: Unpack[RolloutOptions]
    ) -> AsyncGenerator[Trajectory, None]:
        """The same, with every lease, loss and end of ``GROUP.MEMBER`` written into ``book``."""
        tickets, specs = tickets_of(envs, **options)
        kept = {name: value for name, value in options.items() if name not in ("n", "skip")}
        setup = Setup(policy, RolloutOptions(**kept))  # type: ignore[typeddict-item]
        if self._broken is not None:
            raise self._broken
        job = _Job(next(self._numbers), setup, tickets, book)
        job.specs = {known.id: known for known in specs}
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
        """Fill the queues as far as the jobs allow, and wake whoever waits for work."""
        drawn = False
        for job in self._jobs.values():
            while held := job.draw():
                self._queues[self.config.pool_of(held.ticket.task.env)].append(held)
                drawn = True
        if drawn:
            self._tell()

    def _tell(self) -> None:
        for worker in self._employed:
            worker.wake.set()

    def _forget(self, job: _Job) -> None:
        for queue in self._queues:
            kept = [held for held in queue if held.job is not job]
            queue.clear()
            queue.extend(kept)

    def _lease(self, worker: _Employed) -> list[_Held]:
        """What ``worker`` is given now."""
        queue = self._queues[worker.pool]
        given: list[_Held] = []
        for _ in range(self._room(worker)):
            if not queue or (given and queue[0].losses >= ALONE_AFTER):
                break
            given.append(queue.popleft())
        return given

    def _room(self, worker: _Employed) -> int:
        """How many more episodes ``worker`` may hold."""
        pool, queue = self.config.pools[worker.pool], self._queues[worker.pool]
        if not queue or any(held.losses >= ALONE_AFTER for held in worker.holds.values()):
            return 0
        if queue[0].losses >= ALONE_AFTER:
            return int(not worker.holds)
        room = self._share(worker, pool) - len(worker.holds)
        return min(room, pool.episodes_per_worker - worker.given) if pool.episodes_per_worker else room

    def _share(self, worker: _Employed, pool: Pool) -> int:
        """How many episodes ``worker`` may hold: its fair share of what there is, and no more than it can begin soon."""
        crew = [other for other in self._employed if other.pool == worker.pool]
        there_is = len(self._queues[worker.pool]) + sum(len(other.holds) for other in crew)
        return min(pool.concurrency + worker.ahead, math.ceil(there_is / len(crew)))

    # -------------------------------------------------------------------------------------------------------------- workers

    async def _census(self) -> None:
        """Hire as many as fit, again and again: nodes come and go."""
        hired = [0] * len(self.config.pools)
        while True:
            for number, pool in enumerate(self.config.pools):
                wanted = await self.fleet.room(pool) if pool.workers is None else pool.workers
                for _ in range(wanted - hired[number]):
                    self._spawn(self._employ(self.fleet.hire(pool), number))
                hired[number] = max(wanted, hired[number])
            await asyncio.sleep(CENSUS)

    async def _employ(self, hand: Hand, pool: int) -> None:
        """Give one worker work, over as many sessions as it takes."""
        pause = FIRST_PAUSE
        while True:
            worker: _Employed | None = None
            try:
                opened = await hand.open()
                worker = _Employed(hand, pool, opened)
                self.workers.add(worker.name)
                self._employed.add(worker)
                pause = FIRST_PAUSE
                await self._converse(worker)
                await hand.replace()  # worn out
            except (Lost, StaleSession) as error:
                if worker is not None:
                    self.deaths += 1
                    self._take_back(worker, str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            finally:
                if worker is not None:
                    self._employed.discard(worker)
            self._tell()

    async def _converse(self, worker: _Employed) -> None:
        """Exchange leases for results until the worker is worn out or lost."""
        wear = self.config.pools[worker.pool].episodes_per_worker
        while not (wear and worker.given >= wear and not worker.holds):
            worker.wake.clear()
            if not worker.holds and self._room(worker) <= 0:
                await worker.wake.wait()
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

    async def _exchange(self, worker: _Employed, wait: float) -> None:
        orders = self._orders(worker, wait)
        patience = self.config.pools[worker.pool].patience
        try:
            async with asyncio.timeout(wait + patience):
                batch = decode_batch(await worker.hand.exchange(worker.session, orders))
        except TimeoutError:
            await worker.hand.replace()
            raise Lost(f"no answer within {wait + patience:g} s") from None
        for played in batch:
            self._accept(worker, played)
        if batch:
            self._draw()

    def _orders(self, worker: _Employed, wait: float) -> Orders:
        leased = self._lease(worker)
        begin: dict[int, Setup] = {}
        specs: dict[int, dict[str, EnvSpec]] = {}
        for held in leased:
            worker.holds[held.key] = held
            job, env = held.job, held.ticket.task.env
            if job.number not in worker.jobs:
                begin[job.number], worker.jobs[job.number] = job.setup, set()
            if env not in worker.jobs[job.number]:
                worker.jobs[job.number].add(env)
                specs.setdefault(job.number, {})[env] = job.specs[env]
            if job.book is not None:
                job.book.lease(held.name, worker.name, held.ticket.attempt)
        worker.given += len(leased)
        ended = tuple(job for job in worker.jobs if job not in self._jobs)
        for number in ended:
            del worker.jobs[number]
        worker.holds = {key: held for key, held in worker.holds.items() if key[0] not in ended}
        leases = encode_msgpack([Lease(held.job.number, held.ticket) for held in leased]) if leased else b""
        return Orders(leases, begin, specs, ended, wait)

    def _accept(self, worker: _Employed, played: Played) -> None:
        worker.ended += 1
        held = worker.holds.pop((played.job, played.group, played.member), None)
        if held is not None:  # else nobody waits for it any more
            held.job.end(held, played.trajectories)

    def _take_back(self, worker: _Employed, why: str) -> None:
        """What a lost worker held is played again, first of all; or given up."""
        for held in reversed(worker.holds.values()):
            if held.job.number not in self._jobs:
                continue
            held.losses += 1
            if held.losses >= GIVEN_UP_AFTER:
                held.job.end(held, (_given_up(held, why),))
                continue
            if held.job.book is not None:
                held.job.book.fail(held.name, "WorkerLost", held.ticket.attempt, again=True)
            self._queues[worker.pool].appendleft(held)
        worker.holds.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._stopped)

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """Nobody stops but by a mistake of ours or the caller's: whoever waits is told."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._broken = error
        for job in self._jobs.values():
            job.broken, job.exhausted, job.under_way = error, True, len(job.finished)
            job.news.set()


def _given_up(held: _Held, why: str) -> Trajectory:
    ticket = held.ticket
    message = f"{held.losses} workers died under this episode, at last while they played nothing else: {why}"
    failure = Failure(Boundary.INFRASTRUCTURE, Phase.STEP, "WorkerLost", message, ticket.attempt)
    return Trajectory(
        task=ticket.task,
        stop=StopReason.ERROR,
        failures=(failure,),
        seed=ticket.seed,
        group=ticket.group,
        member=ticket.member,
        attempt=ticket.attempt,
    )
