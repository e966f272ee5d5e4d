"""Worker side: plays the episodes leased to it, and returns them in batches.

A worker knows no other worker and stores nothing that matters. The dispatcher opens a session; opening one ends whatever an
earlier session left running. Every later call names its session, and the worker refuses any session but the current one. So the
next call reveals a dispatcher that lost contact, or a worker that was restarted.

Keys and trajectories are sent as msgpack. The policy, the wrappers and classes that only the dispatcher's program knows are
sent once per job, as a ``Setup``.
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

from palestra.foundation.encoding import UNWRITABLE, decode_msgpack, encode_msgpack
from palestra.registry import EnvSpec
from palestra.rollouts import AnyPolicy, EpisodeKey, EpisodeRunner, RolloutOptions
from palestra.trajectory import Trajectory, writable

__all__ = ["JobOrders", "Lease", "PlayedLease", "RolloutWorker", "Setup", "StaleSession", "decode_batch"]

BATCH = 128
"""Maximum episodes per batch."""
LINGER = 0.1
"""Seconds that the first finished episode waits for others to share its batch, while the worker has enough to play."""


@dataclass(frozen=True)
class Setup:
    """The policy and the settings of a job."""

    policy: AnyPolicy
    options: RolloutOptions


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """One episode of one job."""

    job: int
    key: EpisodeKey


class PlayedLease(msgspec.Struct, frozen=True, array_like=True):
    """The result of a lease: one trajectory per player."""

    job: int
    group: int
    member: int
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True)
class JobOrders:
    """The orders that the dispatcher sends in one call."""

    leases: bytes = b""
    """``list[Lease]`` as msgpack; empty if there are none."""
    begin: dict[int, Setup] = field(default_factory=dict)
    """Jobs of these leases that are new to this session."""
    specs: dict[int, dict[str, EnvSpec]] = field(default_factory=dict)
    """Environments that are new to this session, by job: the worker may have others registered than the dispatcher."""
    end: tuple[int, ...] = ()
    """Jobs that have ended."""
    wait: float = 0.0
    """Seconds to wait for an episode to end, if none has."""


class StaleSession(Exception):
    """The call names a session that is not the current one."""


class Opened(NamedTuple):
    """A session."""

    session: str
    pid: int
    node: str = ""
    """The node, if there are several."""


class RolloutWorker:
    """Plays up to ``concurrency`` episodes at once."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._session = ""
        self._runners: dict[int, EpisodeRunner] = {}
        self._waiting: deque[Lease] = deque()
        self._running: dict[asyncio.Task[None], int] = {}
        self._finished: deque[PlayedLease] = deque()
        self._news = asyncio.Event()
        self._ripe = asyncio.Event()
        """Set while a batch should not wait: it is full, or the worker has free places."""
        self._ending: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        """An exception that escaped an episode, which is a bug. The next call raises it."""

    async def open(self) -> Opened:
        """Begin a session, and end everything of the session before it."""
        self._session = ""
        await self._clear()
        self._session = secrets.token_hex(8)
        return Opened(self._session, os.getpid())

    async def exchange(self, session: str, orders: JobOrders) -> bytes:
        """Take leases, and return a batch of ended episodes: ``list[PlayedLease]`` as msgpack."""
        self._check(session)
        for job, setup in orders.begin.items():
            self._runners[job] = await EpisodeRunner(setup.policy, setup.options).__aenter__()
        for job, specs in orders.specs.items():
            self._runners[job].know(specs)
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
        key = lease.key
        trajectories = await self._runners[lease.job].play(key)
        self._finished.append(PlayedLease(lease.job, key.group, key.member, trajectories))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._running[task]
        if not task.cancelled():
            self._fault = self._fault or task.exception()
        self._news.set()
        self._start()

    async def _end(self, job: int) -> None:
        """Drop ``job`` and close its environments. Runs as a task of its own, because closing may take long."""
        runner = self._runners.pop(job)
        self._waiting = deque(lease for lease in self._waiting if lease.job != job)
        await _cancel([task for task, number in self._running.items() if number == job])
        self._finished = deque(played for played in self._finished if played.job != job)
        await runner.__aexit__(None, None, None)

    async def _clear(self) -> None:
        self._waiting.clear()
        self._news.set()
        await _cancel(list(self._running))
        self._finished.clear()
        self._fault = None
        for job in list(self._runners):
            await self._end(job)
        while self._ending:
            await asyncio.wait(self._ending)


async def _cancel(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def _encode(batch: list[PlayedLease]) -> bytes:
    try:
        return encode_msgpack(batch)
    except UNWRITABLE:
        tamed = [msgspec.structs.replace(played, trajectories=tuple(map(writable, played.trajectories))) for played in batch]
        return encode_msgpack(tamed)


def decode_batch(data: bytes) -> list[PlayedLease]:
    """Decode the answer of ``exchange``."""
    return decode_msgpack(data, list[PlayedLease])
