"""One box, seen from the host: its channels, start, output and end."""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from palestra.errors import InfrastructureError
from palestra.sandbox.contract import KilledBy, Limits, Outcome, ResourceUsage
from palestra.sandbox.jobs import pack_frame
from palestra.sandbox.profile import BoxProfile, explained

__all__ = ["Box", "Exit", "machine_failures"]

_READ_BYTES = 2**16
_START_SECONDS = 30.0
"""Seconds that a box may take to start on an overloaded machine."""
_LAST_WORDS_SECONDS = 5.0
"""Seconds to wait for the end and the output of a box that failed to start."""
_RESERVE = 64
"""Descriptors that boxes leave free, for connections, files and everything else that this process opens."""
_FEW_DESCRIPTORS = (
    "This process may not open more files (an open interpreter takes four). "
    "Raise the limit (ulimit -n) or lower the concurrency."
)


@dataclass(frozen=True)
class Exit:
    """How a box ended, as reported by the launcher."""

    code: int
    killed_by: KilledBy | None
    cpu_seconds: float
    peak_memory: int


class _Output:
    """The output of a box, read as it arrives: the beginning is kept, the rest is counted."""

    def __init__(self, box: "Box", limits: Limits) -> None:
        self._box = box
        self._limits = limits
        self.kept: dict[int, bytearray] = {box.out: bytearray(), box.err: bytearray()}
        self.total = 0

    def watch(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in self.kept:
            loop.add_reader(fd, self._take, fd)

    def unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for fd in self.kept:
            loop.remove_reader(fd)

    def drain(self) -> None:
        """Read everything that is in the pipes now."""
        for fd in self.kept:
            while self._take(fd):
                pass

    def cut(self) -> tuple[bytes, bytes, int]:
        """Return the output kept since the last call, and the number of dropped bytes."""
        out, err = (bytes(kept) for kept in self.kept.values())
        dropped = self.total - len(out) - len(err)
        for kept in self.kept.values():
            kept.clear()
        self.total = 0
        return out, err, dropped

    def _take(self, fd: int) -> bool:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            return False
        self.total += len(data)
        kept = self.kept[fd]
        kept += data[: max(0, self._limits.kept_output - len(kept))]
        if self.total > self._limits.output:
            self._box.kill(KilledBy.OUTPUT)
        # Stop once the limit is passed: a box that prints until it is dead must not block the event loop.
        return self.total <= self._limits.output + 2 * _READ_BYTES


@contextlib.contextmanager
def machine_failures(doing: str) -> Iterator[None]:
    """Convert an ``OSError`` to an ``InfrastructureError``: the agent's code did not cause it."""
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"{doing} failed: {error}.{_remedy(error)}") from error


def _leave_reserve(newest: int) -> None:
    """Raise ``EMFILE`` while a few descriptors are still free.

    The kernel assigns the lowest free number, so ``newest`` shows how many are in use.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and newest + _RESERVE > limit:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _remedy(error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ETOOMANYREFS):
        return f" {_FEW_DESCRIPTORS}"
    return ""


class LauncherOrders(Protocol):
    """What a box needs from the pool that it belongs to."""

    profile: BoxProfile
    bootstrap: bytes

    def order(self, order: bytes, number: int, seconds: float = 0.0, fds: list[int] | None = None) -> None:
        """Send an order to the launcher."""
        ...


class Box:
    """One started box, for one job.

    An error before its job has begun, or a later failure of the host, raises ``InfrastructureError``. What the code inside does
    to its box is an ``Outcome``.
    """

    def __init__(self, pool: LauncherOrders, number: int) -> None:
        self._pool = pool
        self.number = number
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.folder = -1
        """Descriptor of the box's own file system, once the box is ready."""
        self._folders: list[int] = []
        """The descriptors that the runner inside hands over; until then, placeholders that reserve their numbers."""
        self._killed_by: KilledBy | None = None
        self._freed = False
        with contextlib.ExitStack() as undo:
            self.control, control_end = socket.socketpair()
            self._ends = [control_end.detach()]
            undo.callback(self._close_ends)
            undo.callback(self.control.close)
            _leave_reserve(self._ends[0])
            self.out = self._pipe(undo)
            self.err = self._pipe(undo)
            for _ in range(2 if pool.profile.boxed else 1):
                self._folders.append(os.dup(self.out))
                undo.callback(os.close, self._folders[-1])
            undo.pop_all()
        self.control.setblocking(False)
        self.output = _Output(self, pool.profile.limits)

    def _pipe(self, undo: contextlib.ExitStack) -> int:
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        undo.callback(os.close, ours)
        self._ends.append(theirs)
        os.set_blocking(theirs, True)
        return ours

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, []
        for fd in ends:
            os.close(fd)

    def start(self) -> None:
        """Ask the launcher to start the box."""
        try:
            self.control.send(self._pool.bootstrap)
            self._pool.order(b"S", self.number, fds=self._ends)
        finally:
            self._close_ends()

    async def ready(self) -> None:
        """Wait until the runner inside reports that it is ready."""
        if not await self._said():
            raise InfrastructureError(f"a box ended while it started: {await self._last_words()}")
        expected = len(self._folders)
        self._close_folders()
        try:
            _, self._folders, _, _ = socket.recv_fds(self.control, 1, expected)
        except OSError as error:
            raise InfrastructureError(f"a box ended while it started: {error}") from error
        if len(self._folders) != expected:  # the kernel drops descriptors if the receiver has no room
            raise InfrastructureError(f"a box could not hand over its folders. {_FEW_DESCRIPTORS}")
        self.folder = self._folders[0]

    async def _said(self) -> bytes:
        """Return the first byte from the runner without consuming it; nothing if the box ended instead."""
        while True:
            try:
                return self.control.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                await self._readable_or_exited(_START_SECONDS)
            except OSError:  # connection reset: the box ended before it read the bootstrap
                return b""

    def _close_folders(self) -> None:
        folders, self._folders = self._folders, []
        for fd in folders:
            os.close(fd)

    async def begin(self, job: bytes, wall_seconds: float) -> None:
        """Send the job and start its clock. From here on the box is hostile."""
        with machine_failures("starting a job in a box"):
            watched = self._folders if self._pool.profile.boxed else []
            self._pool.order(b"A", self.number, wall_seconds, fds=watched)
            self._folders.remove(self.folder)
            self._close_folders()
            self.output.watch()
            await self.send(job)

    async def send(self, payload: bytes) -> None:
        """Send a frame. If the box has ended, the caller that waits for the answer gets the error."""
        with machine_failures("sending to a box"), contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self.control, pack_frame(payload))

    async def receive(self, limit: int) -> bytes | None:
        """Return one frame of at most ``limit`` bytes. Return ``None`` if the box ended, or kill it if the frame is larger."""
        header = await self._receive_exactly(4)
        if header is None:
            return None
        size = int.from_bytes(header, "big")
        if size > limit:
            self.kill(KilledBy.OUTPUT)
            return None
        return await self._receive_exactly(size)

    async def _receive_exactly(self, count: int) -> bytes | None:
        loop = asyncio.get_running_loop()
        parts = bytearray()
        with machine_failures("receiving from a box"), contextlib.suppress(ConnectionError):
            while len(parts) < count:
                part = await loop.sock_recv(self.control, min(count - len(parts), 2**20))
                if not part:
                    return None
                parts += part
            return bytes(parts)
        return None

    def arm(self, wall_seconds: float) -> None:
        """Start the clock for another cell or test."""
        self._pool.order(b"A", self.number, wall_seconds)

    def disarm(self) -> None:
        """Stop the clock."""
        self._pool.order(b"D", self.number)

    def kill(self, reason: KilledBy) -> None:
        """Ask the launcher to kill everything inside."""
        if self._killed_by is None and not self.exited.done():
            self._killed_by = reason
            self._pool.order(b"K", self.number)

    async def ended(self, began: float) -> Outcome:
        """Wait for the last process to end, and return the outcome."""
        exit = await asyncio.shield(self.exited)
        self.output.unwatch()
        self.output.drain()
        out, err, dropped = self.output.cut()
        usage = ResourceUsage(time.monotonic() - began, exit.cpu_seconds, exit.peak_memory)
        killed_by = self._killed_by or exit.killed_by
        return Outcome(out, err, None if killed_by else exit.code, killed_by, dropped, {}, usage)

    def free(self) -> None:
        """Kill the box if it still runs, and close every descriptor."""
        if self._freed:
            return
        self._freed = True
        self.kill(KilledBy.CANCELLED)
        self.output.unwatch()
        self.control.close()
        for fd in {self.out, self.err, self.folder, *self._folders} - {-1}:
            os.close(fd)

    async def _readable_or_exited(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self.control, _settle, readable)
        try:
            either: list[asyncio.Future[Any]] = [readable, self.exited]
            done, _ = await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(self.control)
        if not done:
            raise InfrastructureError(f"a box did not start within {seconds:.0f} s")
        if self.exited.done() and not readable.done():
            raise InfrastructureError(f"a box ended while it started: {await self._last_words()}")

    async def _last_words(self) -> str:
        self.kill(KilledBy.CANCELLED)
        with contextlib.suppress(InfrastructureError, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await asyncio.shield(self.exited)
        self.output.drain()
        _, err, _ = self.output.cut()
        return explained(err.decode(errors="replace").strip()[:500])


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
