"""One shell box, seen from the host: its terminal, its channel of commands, its layer, and its end."""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator

from palestra.errors import InfrastructureError
from palestra.sandbox.box import Exit, machine_failures
from palestra.sandbox.boxes import LauncherPool
from palestra.sandbox.contract import KilledBy
from palestra.sandbox.procfs import children_of, descendants_of, read, signal_quietly
from palestra.sandbox.profile import explained
from palestra.sandbox.shell_launcher import FULL, MODULES, READY
from palestra.sandbox.shell_profile import ShellProfile

__all__ = ["LayerFull", "Prompt", "ShellBox", "ShellPool"]

_READ_BYTES = 2**16
_START_SECONDS = 30.0
_LAST_SECONDS = 5.0
_LONGEST_MARK = 64
_ROWS, _COLUMNS = 40, 120
_LAST_WORDS = 500

Prompt = int | None
"""The exit code of the command that the shell has ended, or ``None`` if the shell itself has ended."""


class LayerFull(InfrastructureError):
    """A box could not be started, because its copy of a layer is full."""


class ShellBox:
    """One started shell.

    Args:
        pool: Its launcher.
        number: Its number there.
        source: The descriptor of the layer that it begins with a copy of, or -1.
        left: Whether an agent has left this layer: the copy then has room beside the agent's files, and time to be made.
    """

    def __init__(self, pool: "ShellPool", number: int, source: int, left: bool) -> None:
        self._pool = pool
        self._left = left
        self._patience = _START_SECONDS + (_seconds_to_copy(source) if left else 0.0)
        self.number = number
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.layer = self.view = -1
        """Descriptors of the layer's own folder, and of the root folder as the agent sees it."""
        self.kind = ""
        self.outer = 0
        self._words = b""
        """The arguments of the shell, by which the session knows whether another program has taken its place."""
        self.total = 0
        self.data = bytearray()
        """What the terminal has shown and no caller has taken."""
        self.dropped = 0
        self.flooded = False
        """Whether the command has printed more than it may, and was interrupted."""
        self.prompt: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()
        self._scanned = 0
        self._freed = False
        self._mark = re.compile(re.escape(pool.profile.mark) + rb"(\d{1,9});(\d{1,3})\x07")
        self._command = 0
        """The number of the current command. Input that no program read is a command to bash, and its prompt must not count."""
        self._fds: list[int] = []
        self._ends: list[int] = []
        try:
            self._open(source)
        except BaseException:
            self._close_all()
            raise

    def _open(self, source: int) -> None:
        self.master, slave = os.openpty()
        self._fds.append(self.master)
        self._ends.append(slave)
        unread, self.commands = os.pipe2(os.O_CLOEXEC)
        self._fds += [self.commands]
        self._ends.append(unread)
        ready, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = ready
        self._ends.append(theirs.detach())
        self._ends.append(os.dup(source) if source >= 0 else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        ready.setblocking(False)
        os.set_blocking(self.master, False)
        os.set_blocking(self.commands, False)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._modes = termios.tcgetattr(slave)
        self._modes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, self._modes)

    def start(self) -> None:
        """Ask the launcher to start the box."""
        try:
            self._pool.order(b"L" if self._left else b"S", self.number, fds=self._ends)
        finally:
            self._close_ends()
        asyncio.get_running_loop().add_reader(self.master, self.take)

    async def ready(self) -> None:
        """Wait for the first prompt, and start the clock of the session."""
        try:
            async with asyncio.timeout(self._patience):
                code = await asyncio.shield(self.prompt)
        except TimeoutError:
            raise InfrastructureError(f"a shell did not start within {self._patience:.0f} s") from None
        try:
            packet, fds, _, _ = socket.recv_fds(self._ready, READY.size, 2)
        except OSError:
            packet, fds = b"", []
        self._fds += fds
        if code is None or len(fds) != 2:
            words = bytes(self.data).decode(errors="replace").strip()[-_LAST_WORDS:]
            kind = LayerFull if await self._was_full() else InfrastructureError
            raise kind(f"a shell ended while it started: {explained(words)}")
        self._ready.close()
        self.layer, self.view = fds
        kind, self.outer = READY.unpack(packet)
        self.kind = kind.decode()
        self.remember_shell()
        self._deadline = time.monotonic() + self._pool.session_seconds
        with machine_failures("starting a shell"):
            self._pool.order(b"A", self.number, self._pool.session_seconds, fds=[self.layer])

    async def _was_full(self) -> bool:
        with contextlib.suppress(TimeoutError, InfrastructureError):
            async with asyncio.timeout(_LAST_SECONDS):
                return (await asyncio.shield(self.exited)).code == FULL
        return False

    # ------------------------------------------------------------------------------------------------------------ terminal

    def begin(self, command: bytes) -> None:
        """Let the shell run ``command``. Its output and exit code arrive later."""
        self._begin(command + b"\0", self._pool.profile.trigger)

    def replace(self, line: bytes) -> None:
        """Let the shell run a line that replaces it. Its successor's first prompt has the number ``following``."""
        self._begin(b"", lambda number: line)

    @property
    def following(self) -> int:
        """The number of the next command."""
        return self._command + 1

    def _begin(self, command: bytes, trigger: Callable[[int], bytes]) -> None:
        self.prompt = asyncio.get_running_loop().create_future()
        self._command += 1
        self._scanned = self.total = self.dropped = 0
        self.flooded = False
        with contextlib.suppress(OSError):  # the shell has ended: the reader reports it
            # A program may have left the terminal in another mode, or input unread.
            termios.tcflush(self.master, termios.TCOFLUSH)
            termios.tcsetattr(self.master, termios.TCSANOW, self._modes)
            os.write(self.commands, command)
            os.write(self.master, trigger(self._command))

    def cut(self) -> bytes:
        """Return the output that no caller has taken, without the beginning of a mark."""
        start = self.data.rfind(b"\x1b]7717;", max(0, len(self.data) - _LONGEST_MARK))
        cut = bytes(self.data if start < 0 or self.prompt.done() else self.data[:start])
        del self.data[: len(cut)]
        self._scanned = 0
        return cut

    def type(self, keys: bytes) -> None:
        """Send keys to the program that runs."""
        with contextlib.suppress(OSError):
            os.write(self.master, keys)

    def take(self) -> None:
        """Read what the terminal shows."""
        try:
            part = os.read(self.master, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last process has closed its end
            part = b""
        if not part:
            asyncio.get_running_loop().remove_reader(self.master)
            self._settle(None)
            return
        self.data += part
        self.total += len(part)
        self._find_mark()
        self._bound()

    def _find_mark(self) -> None:
        start = max(0, self._scanned - _LONGEST_MARK)
        while (match := self._mark.search(self.data, start)) is not None:
            start, end, number, code = match.start(), match.end(), int(match[1]), int(match[2])
            del match, self.data[start:end]
            if number == self._command:
                self._settle(code)
        self._scanned = len(self.data)

    def _bound(self) -> None:
        """Keep the first and the last part of a long output."""
        kept = self._pool.profile.limits.kept_output
        excess = len(self.data) - kept
        if excess > _READ_BYTES:
            del self.data[kept // 2 : kept // 2 + excess]
            self.dropped += excess
            self._scanned = len(self.data)
        if self.total > self._pool.profile.limits.output and not self.flooded and not self.prompt.done():
            self.flooded = True
            self.type(b"\x03")

    def _settle(self, code: Prompt) -> None:
        if not self.prompt.done():
            self.prompt.set_result(code)

    # ----------------------------------------------------------------------------------------------------------- processes

    def processes(self) -> list[int]:
        """Return the processes inside, except bubblewrap's own and the shell."""
        inside = children_of(self.outer)
        shell = children_of(inside[0])[:1] if inside else []
        return [pid for pid in descendants_of(inside[0]) if pid not in shell] if inside else []

    def replaced(self) -> bool:
        """Return whether another program has taken the place of the shell, as after ``exec``. It does not read commands."""
        words = self._arguments()
        return bool(words) and words != self._words

    def remember_shell(self) -> None:
        """Note the arguments of the shell, which waits at its first prompt: ``/bin/bash`` may be a script or be emulated."""
        self._words = self._arguments()

    def _arguments(self) -> bytes:
        inside = children_of(self.outer)
        shell = children_of(inside[0])[:1] if inside else []
        return read(f"/proc/{shell[0]}/cmdline") if shell else b""

    def kill_jobs(self) -> None:
        """Kill everything that the shell has started."""
        for pid in self.processes():
            signal_quietly(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop every process inside for a while. The launcher does so before it starts a box that is asked for afterwards."""
        self._pool.order(b"D", self.number)
        try:
            yield
        finally:
            self._pool.order(b"A", self.number, max(0.0, self._deadline - time.monotonic()))

    def kill(self, reason: KilledBy | None = None) -> None:
        """Ask the launcher to kill the whole box."""
        if not self.exited.done():
            self._pool.order(b"K", self.number)

    def free(self) -> None:
        """Kill the box if it still runs, and close every descriptor."""
        if self._freed:
            return
        self._freed = True
        self.kill()
        with contextlib.suppress(OSError, ValueError):
            asyncio.get_running_loop().remove_reader(self.master)
        self._settle(None)
        self._close_all()

    def _close_ends(self) -> None:
        ends, self._ends = self._ends, []
        for fd in ends:
            os.close(fd)

    def _close_all(self) -> None:
        self._close_ends()
        if hasattr(self, "_ready"):
            self._ready.close()
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)


def _seconds_to_copy(layer: int) -> float:
    """Return the time to allow for a copy. The agent chooses the number and the size of the files."""
    used = os.fstatvfs(layer)
    return (used.f_files - used.f_ffree) / 200 + (used.f_blocks - used.f_bfree) * used.f_frsize / 10e6


class ShellPool(LauncherPool[ShellProfile, ShellBox]):
    """The launcher of shells, and those that it has started."""

    modules = MODULES

    def __init__(self, profile: ShellProfile, session_seconds: float, warm: int) -> None:
        super().__init__(profile, warm)
        self.session_seconds = session_seconds
        self._next = (-1, False)

    def _new(self, number: int) -> ShellBox:
        return ShellBox(self, number, *self._next)

    async def open(self, source: int = -1, left: bool = False) -> ShellBox:
        """Return a shell that waits for its first command; over a copy of the layer ``source`` if there is one.

        Raises:
            LayerFull: The copy has no room.
        """
        if source < 0:
            return await self.take()
        self.start()
        self._next = (source, left)
        try:
            box = self._spawn()
        finally:
            self._next = (-1, False)
        try:
            await box.ready()
        except BaseException:
            box.free()
            raise
        return box

    def owner_of(self, box: ShellBox) -> int:
        """Return the uid to which the files of ``box`` belong if root started it, else 0."""
        return os.fstat(box.layer).st_uid if self._config["uid"] else 0
