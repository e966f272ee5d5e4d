"""The far side: plays the episodes it holds a lease of, and hands them over in batches.

A worker knows no other worker and keeps nothing that matters. Whoever employs it opens a session; to open one ends whatever an
earlier session left running. Every later call names the session, and one that is not the present one is refused: so an
employer that lost touch, or a worker that was restarted behind its back, is found out at the next call.

Tickets and trajectories cross as msgpack. What is to be played with (the policy, wrappers, classes that only the employer's
program knows) crosses once for each job, as a ``Setup``.
"""

import asyncio
import os
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from palestra.encoding import decode_msgpack, encode_msgpack
from palestra.registry import EnvSpec
from palestra.rollout import AnyPolicy, RolloutOptions, Stage, Ticket
from palestra.trajectory import Trajectory, writable

__all__ = ["Lease", "Orders", "Played", "RolloutWorker", "Setup", "StaleSession", "decode_batch"]

BATCH = 128
"""The most episodes of one batch."""
LINGER = 0.1
"""Seconds that the first finished episode waits for company, while the worker has enough to do."""


@dataclass(frozen=True)
class Setup:
    """What a job is played with."""

    policy: AnyPolicy
    options: RolloutOptions


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """One episode of one job."""

    job: int
    ticket: Ticket


class Played(msgspec.Struct, frozen=True, array_like=True):
    """What came of it: a trajectory for each player."""

    job: int
    group: int
    member: int
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True)
class Orders:
    """What an employer says in one call."""

    leases: bytes = b""
    """``list[Lease]`` as msgpack; nothing for none."""
    begin: dict[int, Setup] = field(default_factory=dict)
    """Jobs that the leases belong to and that this session has not heard of."""
    specs: dict[int, dict[str, EnvSpec]] = field(default_factory=dict)
    """By job: environments that it has not heard of. What is registered need not be the same in every process."""
    end: tuple[int, ...] = ()
    """Jobs that nobody waits for any more."""
    wait: float = 0.0
    """Seconds to wait for an episode to end, if none has."""


class StaleSession(Exception):
    """The call names a session that is not the present one."""


class Opened(NamedTuple):
    """A session."""

    session: str
    pid: int
    place: str = ""
    """The node, where there are several."""


class RolloutWorker:
    """Plays up to ``concurrency`` episodes at once."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._session = ""
        self._stages: dict[int, Stage] = {}
        self._waiting: deque[Lease] = deque()
        self._running: dict[asyncio.Task[None], int] = {}
        self._finished: deque[Played] = deque()
        self._news = asyncio.Event()
        self._ripe = asyncio.Event()
        """Set while a batch should not wait: it is full, or the worker could play more than it has."""
        self._ending: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        """What no episode may raise: a mistake of ours. It is told at the next call."""

    async def open(self) -> Opened:
        """Begin a session, and forget whatever was before it."""
        self._session = ""
        await self._clear()
        self._session = secrets.token_hex(8)
        return Opened(self._session, os.getpid())

    async def exchange(self, session: str, orders: Orders) -> bytes:
        """Take leases, and give a batch of what has ended: ``list[Played]`` as msgpack."""
        self._check(session)
        for job, setup in orders.begin.items():
            self._stages[job] = await Stage(setup.policy, **setup.options).__aenter__()
        for job, specs in orders.specs.items():
            self._stages[job].know(specs)
        for job in orders.end:
            self._ending.add(task := asyncio.create_task(self._end(job)))
            task.add_done_callback(self._ending.discard)
        if orders.leases:
            self._waiting += decode_msgpack(orders.leases, list[Lease])
            self._start()
        if orders.wait and not self._finished:
            await self._until(self._news, orders.wait)
        if orders.wait and self._finished:
            await self._until(self._ripe, LINGER)
        self._check(session)
        return _encode([self._finished.popleft() for _ in range(min(BATCH, len(self._finished)))])

    async def close(self) -> None:
        """End everything."""
        self._session = ""
        await self._clear()

    def _check(self, session: str) -> None:
        if session != self._session:
            raise StaleSession(f"session {session} is over")
        if self._fault is not None:
            raise self._fault

    async def _until(self, event: asyncio.Event, seconds: float) -> None:
        if event is self._news:
            event.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._concurrency:
            lease = self._waiting.popleft()
            task = asyncio.create_task(self._play(lease))
            self._running[task] = lease.job
            task.add_done_callback(self._ended)
        if len(self._running) < self._concurrency or len(self._finished) >= BATCH:
            self._ripe.set()
        else:
            self._ripe.clear()

    async def _play(self, lease: Lease) -> None:
        ticket = lease.ticket
        trajectories = await self._stages[lease.job].play(ticket)
        self._finished.append(Played(lease.job, ticket.group, ticket.member, trajectories))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        if not task.cancelled():
            self._fault = self._fault or task.exception()
        self._news.set()
        self._start()

    async def _end(self, job: int) -> None:
        """Forget ``job``, and close what it was played with. On the side: environments may take their time to close."""
        stage = self._stages.pop(job)
        self._waiting = deque(lease for lease in self._waiting if lease.job != job)
        await _cancel([task for task, own in self._running.items() if own == job])
        self._finished = deque(played for played in self._finished if played.job != job)
        await stage.__aexit__()

    async def _clear(self) -> None:
        self._waiting.clear()
        self._news.set()
        await _cancel(list(self._running))
        self._finished.clear()
        self._fault = None
        for job in list(self._stages):
            await self._end(job)
        while self._ending:
            await asyncio.wait(self._ending)


async def _cancel(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _encode(batch: list[Played]) -> bytes:
    try:
        return encode_msgpack(batch)
    except (TypeError, ValueError, OverflowError, RecursionError):
        tamed = [msgspec.structs.replace(one, trajectories=tuple(map(writable, one.trajectories))) for one in batch]
        return encode_msgpack(tamed)


def decode_batch(data: bytes) -> list[Played]:
    """What ``exchange`` gave."""
    return decode_msgpack(data, list[Played])
