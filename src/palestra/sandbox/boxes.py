"""The host's side of boxes: a client of the launcher, the boxes it holds, and those kept warm.

A warm box has started its interpreter and waits for its one job. Taking one starts another, so the cost of starting is paid
while nobody waits. A box is used once.
"""

import asyncio
import collections
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from palestra.errors import InfrastructureError
from palestra.sandbox.contract import KilledBy, Limits, Outcome, Usage
from palestra.sandbox.launcher import ORDER, REPORT
from palestra.sandbox.profile import Profile

__all__ = ["Box", "BoxPool", "pack_fields", "pack_frame"]

_READ_BYTES = 2**16
_START_SECONDS = 30.0
"""How long a box may take to start on a machine that is overloaded."""


def pack_frame(payload: bytes) -> bytes:
    """``payload`` with its length in front."""
    return len(payload).to_bytes(4, "big") + payload


def pack_fields(*fields: bytes) -> bytes:
    """The fields of a job, each with its length in front."""
    return b"".join(map(pack_frame, fields))


@dataclass(frozen=True)
class Exit:
    """How a box ended, as the launcher saw it."""

    code: int
    killed_by: KilledBy | None
    cpu_seconds: float
    peak_memory: int


@cache
def _launcher_source() -> str:
    return Path(__file__).with_name("launcher.py").read_text()


class _Output:
    """What a box prints, read as it comes: the beginning is kept, the rest counted."""

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
        """Whatever is in the pipes now."""
        for fd in self.kept:
            while self._take(fd):
                pass

    def cut(self) -> tuple[bytes, bytes, int]:
        """What was kept since the last cut, and how much was dropped."""
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
        # Stop here once the limit is passed: a box that prints faster than it dies must not hold the event loop.
        return self.total <= self._limits.output + 2 * _READ_BYTES


class Box:
    """One started box, good for one job."""

    def __init__(self, pool: "BoxPool", number: int) -> None:
        self._pool = pool
        self.number = number
        self.control, control_end = socket.socketpair()
        self.out, out_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.err, err_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.control.setblocking(False)
        os.set_blocking(out_end, True)
        os.set_blocking(err_end, True)
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.output = _Output(self, pool.profile.limits)
        self.folder = -1
        """The box's own file system, as a descriptor, once it is ready."""
        self._folders: list[int] = []
        self._killed_by: KilledBy | None = None
        self._freed = False
        try:
            self.control.send(pool.bootstrap)
            pool.order(b"S", number, fds=[control_end.fileno(), out_end, err_end])
        finally:
            control_end.close()
            os.close(out_end)
            os.close(err_end)

    async def ready(self) -> None:
        """Wait until the runner inside has announced itself."""
        while True:
            try:
                said, self._folders, _, _ = socket.recv_fds(self.control, 1, 2)
            except BlockingIOError:
                await self._readable_or_exited(_START_SECONDS)
                continue
            if not said:
                raise InfrastructureError(f"a box ended while it started: {await self._last_words()}")
            self.folder = self._folders[0]
            return

    async def begin(self, job: bytes, wall_seconds: float) -> None:
        """Hand over the job and start its clock. From here on the box is hostile."""
        watched = self._folders if self._pool.profile.boxed else []
        self._pool.order(b"A", self.number, wall_seconds, fds=watched)
        for fd in self._folders[1:]:
            os.close(fd)
        self._folders = []
        self.output.watch()
        await self.send(job)

    async def send(self, payload: bytes) -> None:
        """Send a frame; a box that has gone is found out by whoever waits for its answer."""
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self.control, pack_frame(payload))

    async def receive(self, limit: int) -> bytes | None:
        """One frame of at most ``limit`` bytes; ``None`` if the box ended, or sent a larger one and is killed for it."""
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
        while len(parts) < count:
            try:
                part = await loop.sock_recv(self.control, min(count - len(parts), 2**20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)

    def arm(self, wall_seconds: float) -> None:
        """Start the clock of another cell or test."""
        self._pool.order(b"A", self.number, wall_seconds)

    def disarm(self) -> None:
        """Stop the clock."""
        self._pool.order(b"D", self.number)

    def kill(self, reason: KilledBy) -> None:
        """Have the launcher kill everything inside."""
        if self._killed_by is None and not self.exited.done():
            self._killed_by = reason
            self._pool.order(b"K", self.number)

    async def ended(self, began: float) -> Outcome:
        """Wait for the last process to go, and tell how it went."""
        exit = await asyncio.shield(self.exited)
        self.output.unwatch()
        self.output.drain()
        out, err, dropped = self.output.cut()
        usage = Usage(time.monotonic() - began, exit.cpu_seconds, exit.peak_memory)
        killed_by = self._killed_by or exit.killed_by
        return Outcome(out, err, None if killed_by else exit.code, killed_by, dropped, {}, usage)

    def free(self) -> None:
        """Kill it if it still runs, and give back every descriptor."""
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
        with contextlib.suppress(InfrastructureError):
            await asyncio.shield(self.exited)
        self.output.drain()
        _, err, _ = self.output.cut()
        return err.decode(errors="replace").strip()[:500] or "no message"


class BoxPool:
    """The launcher of one provider, and the boxes it has started."""

    def __init__(self, profile: Profile, warm: int) -> None:
        self.profile = profile
        self.bootstrap = profile.bootstrap()
        self._warm_target = warm
        self._warm: collections.deque[Box] = collections.deque()
        self._boxes: dict[int, Box] = {}
        self._numbers = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def start(self) -> None:
        """Start the launcher and the first warm boxes, unless they run."""
        if self._process is not None:
            return
        self._folder = "/" if self.profile.boxed else tempfile.mkdtemp(prefix="palestra-unboxed-")
        config = self.profile.launcher_config(self._folder)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                # As text, and by the interpreter of the boxes: whoever runs it need not be able to read our own files.
                [self.profile.python, "-I", "-S", "-c", _launcher_source(), str(theirs.fileno()), config],
                env={},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                start_new_session=True,
            )
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._reports)
        self._refill()

    async def take(self) -> Box:
        """A box that waits for its job."""
        while True:
            self.start()
            box = self._warm.popleft() if self._warm else self._spawn()
            if 2 * len(self._warm) < self._warm_target:
                # Running low. Otherwise the next one is started when this one ends, so that it does not slow it down.
                self._refill()
            if box.exited.done() and self._process is None:  # the launcher died while this one was warm
                box.free()
                continue
            try:
                await box.ready()
            except BaseException:
                box.free()
                raise
            return box

    def order(self, order: bytes, number: int, seconds: float = 0.0, fds: list[int] | None = None) -> None:
        """Tell the launcher. If it has gone, its boxes have too, and their futures say so."""
        if self._control is None:
            return
        packet = ORDER.pack(order, number, seconds)
        self._control.setblocking(True)  # a full socket means the launcher is behind by hundreds of orders: wait for it
        try:
            if fds:
                socket.send_fds(self._control, [packet], fds)
            else:
                self._control.send(packet)
        except ConnectionError:
            self._launcher_died()
        finally:
            if self._control is not None:
                self._control.setblocking(False)

    async def close(self) -> None:
        """Kill every box, wait until the last process has gone, and leave nothing."""
        process, control = self._process, self._control
        self._process = self._control = None
        if process is None or control is None:
            return
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        await asyncio.to_thread(process.wait)
        self._abandon("the sandbox was closed")
        if not self.profile.boxed:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def running(self) -> int:
        """How many boxes exist, warm ones included."""
        return len(self._boxes)

    def _spawn(self) -> Box:
        self._numbers += 1
        box = self._boxes[self._numbers] = Box(self, self._numbers)
        return box

    def _refill(self) -> None:
        while len(self._warm) < self._warm_target and self._process is not None:
            self._warm.append(self._spawn())

    def _reports(self) -> None:
        assert self._control is not None
        while True:
            try:
                packet = self._control.recv(REPORT.size)
            except BlockingIOError:
                return
            except ConnectionError:
                packet = b""
            if not packet:
                self._launcher_died()
                return
            self._take_report(packet)

    def _take_report(self, packet: bytes) -> None:
        _, number, code, reason, cpu_seconds, peak = REPORT.unpack(packet)
        box = self._boxes.pop(number, None)
        if box is not None and not box.exited.done():
            box.exited.set_result(Exit(code, _reason(reason.rstrip(b"\0").decode(), code), cpu_seconds, peak))
        asyncio.get_running_loop().call_soon(self._refill)  # after whoever waited for this one has gone on

    def _launcher_died(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        if process is not None:
            process.kill()
            process.wait()
        self._abandon("the launcher of the boxes died")

    def _abandon(self, why: str) -> None:
        boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            if not box.exited.done():
                box.exited.set_exception(InfrastructureError(why))
                box.exited.exception()  # seen: a box that nobody waits for is no news
        for box in self._warm:
            box.free()
        self._warm.clear()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reason(said: str, code: int) -> KilledBy | None:
    if said:
        return KilledBy(said)
    return KilledBy.CPU_TIME if code in (128 + 24, -24) else None
