"""A pool of boxes on the host: it talks to the launcher, and keeps some boxes warm.

A warm box has started its interpreter and waits for its only job. Taking one starts another, so that starting a box delays no
job. A box is used once.
"""

import asyncio
import collections
import contextlib
import errno
import json
import shutil
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from palestra.errors import InfrastructureError
from palestra.sandbox.box import Box, Exit, machine_failures
from palestra.sandbox.contract import KilledBy
from palestra.sandbox.launcher import MODULES, NOT_STARTED, ORDER, REPORT
from palestra.sandbox.profile import BoxProfile

__all__ = ["BoxPool", "LauncherPool", "PoolProfile"]

_LAUNCHER_DIED = "the launcher of the boxes died"
_ROOM_SECONDS = 60.0
"""Seconds that a job waits for descriptors if no other box ends."""


_LAUNCH = """\
import json, sys, types
for name, source in json.loads(sys.argv[3]):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""


class PoolProfile(Protocol):
    """What a pool needs to know about its boxes."""

    @property
    def boxed(self) -> bool:
        """Whether the boxes have namespaces of their own."""
        ...

    @property
    def python(self) -> str:
        """Path of the interpreter that runs the launcher."""
        ...

    def launcher_config(self) -> dict[str, Any]:
        """Return the configuration of the launcher."""
        ...


class Started(Protocol):
    """What a pool needs of a box."""

    exited: "asyncio.Future[Exit]"

    def start(self) -> None:
        """Ask the launcher to start the box."""
        ...

    async def ready(self) -> None:
        """Wait until the box is ready."""
        ...

    def free(self) -> None:
        """Kill the box and close every descriptor."""
        ...


P = TypeVar("P", bound=PoolProfile)
B = TypeVar("B", bound=Started)


@cache
def _launcher_source(modules: tuple[str, ...]) -> str:
    """Return name and source of the launcher and its modules, as JSON."""
    names = [f"palestra.sandbox.{name}" for name in modules]
    return json.dumps([(name, Path(__file__).with_name(f"{name.rpartition('.')[2]}.py").read_text()) for name in names])


class LauncherPool(ABC, Generic[P, B]):
    """The launcher of one provider, and the boxes that it has started."""

    modules: tuple[str, ...] = MODULES
    """The launcher and the modules that it imports."""

    def __init__(self, profile: P, warm: int) -> None:
        self.profile = profile
        self._config = profile.launcher_config()
        self._warm_target = warm
        self._warm: collections.deque[B] = collections.deque()
        self._boxes: dict[int, B] = {}
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        """Jobs that wait for descriptors, oldest first. The end of a box wakes one of them."""
        self._numbers = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = "/"

    @abstractmethod
    def _new(self, number: int) -> B:
        """Return a box that has not been started."""

    def start(self) -> None:
        """Start the launcher and the first warm boxes, unless they run."""
        if self._process is not None:
            return
        with machine_failures("starting the launcher of the boxes"), contextlib.ExitStack() as undo:
            if not self.profile.boxed:
                self._folder = tempfile.mkdtemp(prefix="palestra-unboxed-")
                undo.callback(shutil.rmtree, self._folder)
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(control.close)
            control.setblocking(False)
            with theirs:
                self._process = self._launch(theirs.fileno())
            self._control = control
            undo.pop_all()
        asyncio.get_running_loop().add_reader(control, self._reports)
        self._refill()

    def _launch(self, control: int) -> "subprocess.Popen[bytes]":
        config = json.dumps({**self._config, "folder": self._folder})
        return subprocess.Popen(
            # Sent as text, and run by the boxes' interpreter, because the user that runs it may be unable to read our files.
            [self.profile.python, "-I", "-S", "-c", _LAUNCH, str(control), config, _launcher_source(self.modules)],
            env={},
            stdin=subprocess.DEVNULL,
            pass_fds=[control],
            cwd="/",
            start_new_session=True,
        )

    async def take(self) -> B:
        """Return a box that waits for its job."""
        while True:
            self.start()
            box = self._warm.popleft() if self._warm else await self._spawned()
            if 2 * len(self._warm) < self._warm_target:
                # Few are left. Otherwise the next one starts when this one ends, so that starting it does not slow this job.
                self._refill()
            if box.exited.done() and self._process is None:  # the launcher died while this box was warm
                box.free()
                continue
            try:
                await box.ready()
            except BaseException:
                box.free()
                raise
            return box

    def order(self, order: bytes, number: int, seconds: float = 0.0, fds: list[int] | None = None) -> None:
        """Send an order. If the launcher is gone, its boxes are too, and their futures report it."""
        if self._control is None:
            return
        packet = ORDER.pack(order, number, seconds)
        self._control.setblocking(True)  # a full socket means that the launcher is hundreds of orders behind: wait
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
        """Kill every box and wait until the last process has ended."""
        process, control = self._process, self._control
        self._process = self._control = None
        if process is None or control is None:
            return
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        try:
            # A program that ends cancels a closing that is under way; the thread waits for the launcher all the same.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, process.wait))
        finally:
            self._abandon("the sandbox was closed")
            if not self.profile.boxed:
                shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def running(self) -> int:
        """Number of existing boxes, warm ones included."""
        return len(self._boxes)

    async def _spawned(self) -> B:
        """Return a new box. If descriptors are used up, wait until another box has ended."""
        while True:
            try:
                return self._spawn()
            except InfrastructureError as error:
                few = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE)
                if not few or not self._boxes or not await self._room():
                    raise

    async def _room(self) -> bool:
        """Wait for the end of a box; return false if none ends in time."""
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(gone)
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                await gone
        except TimeoutError:
            return _is_set(gone)  # a box may have ended at the moment of the timeout
        except asyncio.CancelledError:
            if _is_set(gone):
                self._wake()  # this job no longer needs the room; the next one gets it
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(gone)
        return True

    def _wake(self) -> None:
        while self._waiting:
            gone = self._waiting.popleft()
            if not gone.done():
                gone.set_result(None)
                return

    def _spawn(self) -> B:
        self._numbers += 1
        with machine_failures("starting a box"):
            box = self._boxes[self._numbers] = self._new(self._numbers)
            try:
                box.start()
            except BaseException:
                del self._boxes[self._numbers]
                box.free()
                raise
        return box

    def _refill(self) -> None:
        with contextlib.suppress(InfrastructureError):  # the next job that needs a box reports it
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
            _tell(box.exited, code, reason.rstrip(b"\0").decode(), cpu_seconds, peak)
        self._wake()
        asyncio.get_running_loop().call_soon(self._refill)  # after the code that waited for this box has resumed

    def _launcher_died(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        if process is not None:
            process.kill()
            process.wait()
        self._abandon(_LAUNCHER_DIED)

    def _abandon(self, why: str) -> None:
        boxes, self._boxes = list(self._boxes.values()), {}
        for box in boxes:
            if not box.exited.done():
                box.exited.set_exception(InfrastructureError(why))
                box.exited.exception()  # marked as retrieved: asyncio must not log a box that no code waits for
        for box in self._warm:
            box.free()
        self._warm.clear()
        while self._waiting:
            self._wake()


class BoxPool(LauncherPool[BoxProfile, Box]):
    """The boxes of jobs and interpreters."""

    def __init__(self, profile: BoxProfile, warm: int) -> None:
        self.bootstrap = profile.bootstrap()
        super().__init__(profile, warm)

    def _new(self, number: int) -> Box:
        return Box(self, number)


def _is_set(future: "asyncio.Future[None]") -> bool:
    return future.done() and not future.cancelled()


def _tell(exited: "asyncio.Future[Exit]", code: int, report: str, cpu_seconds: float, peak: int) -> None:
    if report == NOT_STARTED:
        exited.set_exception(InfrastructureError("the launcher could not start a box: see its standard error"))
        exited.exception()  # marked as retrieved: asyncio must not log a box that no code waits for
    else:
        exited.set_result(Exit(code, _reason(report, code), cpu_seconds, peak))


def _reason(report: str, code: int) -> KilledBy | None:
    if report:
        return KilledBy(report)
    return KilledBy.CPU_TIME if code in (128 + 24, -24) else None
