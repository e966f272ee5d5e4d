"""Boxes on this machine: ``Bubblewrap``, and ``Unboxed``, which must be asked for by name."""

import asyncio
import contextlib
import os
import time
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from palestra.errors import UsageError
from palestra.sandbox.box import Box
from palestra.sandbox.boxes import BoxPool
from palestra.sandbox.contract import (
    Begun,
    Judged,
    KilledBy,
    Limits,
    Outcome,
    Program,
    ResourceUsage,
    Sandbox,
    SandboxSession,
    TestLine,
    check_relative,
)
from palestra.sandbox.files import fetch_file
from palestra.sandbox.jobs import file_fields, job_of, pack_fields
from palestra.sandbox.profile import BoxProfile

__all__ = ["Bubblewrap", "Unboxed"]

_ANSWER_LIMIT = 2**24 + 1


class _Local(Sandbox):
    """A provider whose boxes are processes of this machine."""

    def __init__(self, profile: BoxProfile, *, warm: int, concurrency: int | None) -> None:
        cores = os.cpu_count() or 1
        self.limits = profile.limits
        self._pool = BoxPool(profile, warm)
        self._slots = asyncio.Semaphore(concurrency or 4 * cores)

    async def run(self, program: Program, *, begun: Begun | None = None) -> Outcome:
        async with self._slots, self._box() as box:
            if begun is not None:
                begun()
            began = time.monotonic()
            await box.begin(job_of(program), program.wall_seconds or self.limits.wall_seconds)
            outcome = await box.ended(began)
            return _with_files(box, outcome, program.wanted, self.limits)

    async def open_session(self, files: Mapping[str, bytes] | None = None) -> SandboxSession:
        session = _LocalSession(await self._pool.take(), self.limits, self._slots)
        async with _closed_on_failure(session):
            await session.begin(files or {})
        return session

    async def open_tests(self, kind: bytes, fields: Sequence[bytes]) -> TestLine:
        line = _LocalTests(await self._pool.take(), self.limits, self._slots)
        async with _closed_on_failure(line):
            await line.begin(kind, fields)
        return line

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def _box(self) -> AsyncIterator[Box]:
        box = await self._pool.take()
        try:
            yield box
        finally:
            box.free()


class Bubblewrap(_Local):
    """Run each job in its own namespaces, behind a seccomp filter, with limits. The default."""

    name = "bubblewrap"

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        python: str = "/usr/bin/python3",
        packages: Sequence[str] = (),
        warm: int = 4,
        concurrency: int | None = None,
    ) -> None:
        super().__init__(
            BoxProfile(limits=limits or Limits(), python=python, packages=tuple(packages)), warm=warm, concurrency=concurrency
        )


class Unboxed(_Local):
    """No isolation, only resource limits. For your own code, on a machine without bubblewrap."""

    name = "unboxed"

    def __init__(self, limits: Limits | None = None, *, python: str = "/usr/bin/python3", warm: int = 0) -> None:
        warnings.warn("the unboxed sandbox runs code with your own rights: do not run model-written code in it", stacklevel=2)
        super().__init__(BoxProfile(limits=limits or Limits(), python=python, boxed=False), warm=warm, concurrency=None)


class _OpenBox:
    """A box that answers several requests."""

    def __init__(self, box: Box, limits: Limits, slots: asyncio.Semaphore) -> None:
        self._box = box
        self._limits = limits
        self._slots = slots
        self._alive = True

    async def close(self) -> None:
        """Kill the box."""
        self._alive = False
        self._box.free()

    async def _end(self, began: float, reason: KilledBy | None = None) -> Outcome:
        self._alive = False
        if reason is not None:
            self._box.kill(reason)
        return await self._box.ended(began)


@asynccontextmanager
async def _closed_on_failure(opened: _OpenBox) -> AsyncIterator[None]:
    """Close a box if opening it fails or is cancelled: the caller never receives it and cannot close it."""
    try:
        yield
    except BaseException:
        await opened.close()
        raise


class _LocalSession(_OpenBox, SandboxSession):
    """An interpreter in a box."""

    async def begin(self, files: Mapping[str, bytes]) -> None:
        await self._box.begin(b"S" + file_fields(files), self._limits.wall_seconds)
        self._box.disarm()

    @property
    def alive(self) -> bool:
        return self._alive and not self._box.exited.done()

    async def run(self, code: str, *, wall_seconds: float | None = None, begun: Begun | None = None) -> Outcome:
        async with self._slots:
            if begun is not None:
                begun()
            began = time.monotonic()
            reply = await self._ask(b"c" + code.encode(errors="replace"), wall_seconds)
            if reply not in (b"0", b"1"):  # the box ended, or the code in it forged an answer
                return await self._end(began, None if reply is None else KilledBy.CANCELLED)
            self._box.output.drain()
            out, err, dropped = self._box.output.cut()
            return Outcome(out, err, 0 if reply == b"1" else 1, None, dropped, {}, ResourceUsage(time.monotonic() - began))

    async def put(self, files: Mapping[str, bytes]) -> None:
        reply = await self._ask(b"f" + file_fields(files), None)
        if reply != b"1":
            raise OSError((reply or b"0the session has ended")[1:].decode(errors="replace"))

    async def fetch(self, path: str) -> bytes:
        check_relative(path)
        return fetch_file(self._box.folder, f"work/{path}", self._limits.file_bytes)

    async def _ask(self, request: bytes, wall_seconds: float | None) -> bytes | None:
        if not self._alive:
            raise UsageError("this session has ended; open another one")
        self._box.arm(wall_seconds or self._limits.wall_seconds)
        try:
            await self._box.send(request)
            reply = await self._box.receive(1024)
        except asyncio.CancelledError:
            await self.close()  # the next answer would otherwise be taken for that of another cell
            raise
        if reply is not None:  # else the clock keeps running, in case only the channel was closed
            self._box.disarm()
        return reply


class _LocalTests(_OpenBox, TestLine):
    """A judged candidate, or trusted tests, in a box."""

    async def begin(self, kind: bytes, fields: Sequence[bytes]) -> None:
        await self._box.begin(kind + pack_fields(*fields), self._limits.wall_seconds)
        self._box.disarm()

    async def ask(self, given: bytes | None, *, wall_seconds: float | None = None) -> Judged:
        if not self._alive:
            return Judged(None, "the box has ended")
        async with self._slots:
            self._box.arm(wall_seconds or self._limits.wall_seconds)
            if given is not None:
                await self._box.send(given)
            frame = await self._box.receive(_ANSWER_LIMIT)
        if frame is None:
            outcome = await self._end(time.monotonic())
            return Judged(None, outcome.stderr.decode(errors="replace")[-500:], outcome.killed_by)
        self._box.disarm()
        self._box.output.drain()
        self._box.output.cut()
        return Judged(frame)


def _with_files(box: Box, outcome: Outcome, wanted: Sequence[str], limits: Limits) -> Outcome:
    files: dict[str, bytes] = {}
    for path in wanted:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            files[path] = fetch_file(box.folder, f"work/{path}", limits.file_bytes)
    return Outcome(**{**vars(outcome), "files": files}) if files else outcome
