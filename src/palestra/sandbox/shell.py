"""Shells in boxes: bash on a terminal of its own, which stays open over the turns of an episode.

``Shells`` opens sessions over a root folder. Each session writes to a layer of its own, in memory and of limited size, and has
no network. ``run`` returns when the command has ended, or with what the command has printed so far when its time is over; the
command then still runs, and ``send`` and ``interrupt`` reach it.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from palestra.errors import InfrastructureError, Unsupported, UsageError
from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.sandbox.box import Exit
from palestra.sandbox.contract import KilledBy, Limits
from palestra.sandbox.files import fetch_file
from palestra.sandbox.layers import Entry, NewFile, copy_of, move_away, names_in, read_tree, save_layer, write_files
from palestra.sandbox.procfs import read
from palestra.sandbox.profile import require_boxes
from palestra.sandbox.screen import clean
from palestra.sandbox.shell_box import LayerFull, ShellBox, ShellPool
from palestra.sandbox.shell_profile import ENVIRONMENT, HOME, NEXT, SHELL_LIMITS, ShellProfile

__all__ = [
    "ENVIRONMENT",
    "HOME",
    "MOST_COMMAND_BYTES",
    "SHELL_LIMITS",
    "LayerFull",
    "NewFile",
    "Shell",
    "ShellOutcome",
    "ShellProcess",
    "Shells",
    "shared_shells",
]

MOST_COMMAND_BYTES = 60_000
"""Bytes of the longest command: it has to fit into a pipe."""
_GRACE_SECONDS = 1.0
_KEYS_SECONDS = 0.5
_LOOK_SECONDS = 0.25
"""Seconds between two looks at whether a command has replaced the shell."""
_STATE = (
    "{ printf 'cd -- %q 2>/dev/null\\n' \"$PWD\"; declare -px; printf '#whole\\n'; } > /.palestra-fork 2>/dev/null; "
    "__restore $__status"
)


@dataclass(frozen=True)
class ShellOutcome:
    """What a command has printed, and how it ended."""

    raw: bytes = b""
    """The output as the terminal received it, escape sequences included."""
    exit_code: int | None = None
    """``None`` while the command runs, and if the shell was killed. Code in the box can forge it: it is no evidence."""
    running: bool = False
    """The command still runs."""
    replaced: bool = False
    """The command has replaced the shell by a program that runs, as ``exec bash`` does. No other command can be run."""
    ended: bool = False
    """The shell itself has ended."""
    killed_by: KilledBy | None = None
    dropped: int = 0
    """Bytes of the output that were not kept."""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The output without escape sequences and control characters."""
        return clean(self.raw)


class ShellProcess(NamedTuple):
    """A process in a session."""

    pid: int
    """Its number on the host."""
    started: int
    """When it was started, in ticks of the host's clock. With ``pid`` it identifies the process."""
    words: list[str]
    """Its arguments. The process chooses them."""


class Shell:
    """One session. Close it, or use it as an async context manager."""

    def __init__(self, shells: "Shells", box: ShellBox) -> None:
        self._shells = shells
        self._box = box
        self.limits = shells.limits
        self.running = False
        """Whether a command still runs."""
        self.alive = True
        self.became = False
        """Whether the shell has become another user than the first."""
        box.data.clear()

    async def __aenter__(self) -> "Shell":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    async def run(self, command: str, *, wall_seconds: float | None = None) -> ShellOutcome:
        """Run a command and return its output; if it takes longer than ``wall_seconds``, the output until then.

        If the command replaces the shell (``exec``), its first output is returned, because no prompt will follow.
        """
        self._require_alive()
        if self.running:
            raise UsageError("a command still runs in this shell: send() keys to it, or interrupt() it")
        written = command.encode(errors="replace").replace(b"\0", b"")
        if len(written) > MOST_COMMAND_BYTES:
            raise UsageError(f"the command has {len(written)} bytes; a shell takes at most {MOST_COMMAND_BYTES}")
        began = time.monotonic()
        self.running = True
        self._box.begin(written)
        return await self._wait(wall_seconds or self.limits.wall_seconds, began, looks=True)

    async def send(self, keys: str, *, wall_seconds: float = _KEYS_SECONDS) -> ShellOutcome:
        """Type ``keys`` for the running command, and return what it prints within ``wall_seconds``."""
        self._require_alive()
        if not self.running:
            raise UsageError("no command runs in this shell: use run()")
        self._box.type(keys.encode(errors="replace")[:4000])
        return await self._wait(wall_seconds, time.monotonic())

    async def interrupt(self) -> ShellOutcome:
        """Press Ctrl-C. If the command ignores that, kill it; if the shell itself hangs, kill the session."""
        self._require_alive()
        began = time.monotonic()
        if self.running:
            self._box.type(b"\x03")
            await self._settled(_GRACE_SECONDS)
        for _ in range(3):
            if not self.running or self._box.prompt.done():
                break
            self._box.kill_jobs()
            await self._settled(_GRACE_SECONDS)
        if self.running and not self._box.prompt.done():
            self._box.kill()
        return await self._wait(2 * _GRACE_SECONDS if self.running else 0.0, began)

    async def become(self, words: str, home: str) -> None:
        """Continue as another user of the box, with the exported variables, in the folder ``home``.

        Args:
            words: What runs a command as that user, such as ``setpriv --reuid=1000 --regid=1000 --clear-groups``.
            home: The user's home folder.
        """
        self._require_alive()
        profile, box = self._shells.profile, self._box
        self.put([NewFile(NEXT, profile.startup(box.following).encode())])
        self.running = self.became = True
        box.replace(profile.replacement(words, home))
        outcome = await self._wait(self.limits.wall_seconds, time.monotonic())
        if outcome.running or outcome.ended:
            await self.close()
            raise InfrastructureError(f"the shell of another user did not start: {outcome.text.strip()[-300:]}")
        box.remember_shell()

    async def fork(self) -> "Shell":
        """Return another session with a copy of the files, the working folder and the exported variables.

        The shell is stopped while its files are copied.

        Raises:
            Unsupported: Processes run in the session; they cannot be copied.
        """
        self._require_alive()
        if self.became:
            raise Unsupported("a shell that has become another user cannot be forked")
        self._require_quiet()
        await self._quietly(_STATE)
        try:
            self._require_quiet()  # the agent may have replaced what _STATE runs
            if not self._fetch_if_there(".palestra-fork").endswith(b"#whole\n"):
                raise Unsupported("the layer of this shell is full, so a fork has no room for the shell's variables")
            with self._box.stopped():
                return await self._shells.open_from(self._box.layer)
        finally:
            if self.alive and not self.running:
                await self._quietly("rm -f /.palestra-fork; __restore $__status")

    def _fetch_if_there(self, path: str) -> bytes:
        try:
            return self.fetch(path)
        except FileNotFoundError:  # a layer without inodes has no room for the file's name
            return b""

    def _require_quiet(self) -> None:
        if self.running or self._box.processes():
            raise Unsupported("processes run in this shell, and a fork cannot copy them")

    async def _quietly(self, command: str) -> None:
        kept = bytes(self._box.data)
        await self.run(command)
        self._box.data[:0] = kept

    def put(self, files: Sequence[NewFile]) -> None:
        """Write files below the root folder."""
        with _as_machine_failure():
            write_files(self._box.view, list(files), self._shells.owner_of(self._box))

    def fetch(self, path: str) -> bytes:
        """Return a regular file below the root folder; raise ``FileNotFoundError`` or ``PermissionError`` otherwise."""
        return fetch_file(self._box.view, path, self.limits.file_bytes)

    def tree(self, folder: str) -> list[Entry]:
        """Return everything below ``folder``, links unfollowed."""
        return read_tree(self._box.view, folder, self.limits.file_bytes)

    def copy_of(self, path: str) -> list[NewFile]:
        """Return a file or folder for ``put`` of another session; raise ``OSError`` if it is missing or too large."""
        return copy_of(self._box.view, path, self.limits.disk_bytes)

    def move_away(self, path: str) -> None:
        """Take whatever stands at ``path`` out of the way; raise ``OSError`` if that is not possible."""
        move_away(self._box.view, path)

    def names_in(self, folder: str) -> list[tuple[str, int]]:
        """Return the names and modes in a folder, links unfollowed; nothing if it is missing or not a folder."""
        return names_in(self._box.view, folder)

    async def stop(self) -> None:
        """Kill every process of the session. Its files can still be read and copied."""
        self.alive = self.running = False
        self._box.kill()
        await asyncio.shield(self._box.exited)

    async def save(self, folder: Path) -> None:
        """Kill every process, and copy the layer to ``SAVED`` of the new folder ``folder``. ``Shells.open_from`` opens it."""
        await self.stop()
        await asyncio.to_thread(save_layer, self._box.layer, folder, self._shells.profile.users)

    async def reopened(self) -> "Shell":
        """Kill every process, and return a fresh session over a copy of the files, with room beside them.

        Raises:
            LayerFull: The agent's files cannot be copied.
        """
        await self.stop()
        return await self._shells.open_from(self._box.layer, left=True)

    def processes(self) -> list[ShellProcess]:
        """Return every process that the shell has started, as the kernel reports them."""
        processes = []
        for pid in self._box.processes():
            words, state = read(f"/proc/{pid}/cmdline"), read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            if words and state:  # else it has just ended
                processes.append(ShellProcess(pid, int(state[19]), words.rstrip(b"\0").decode(errors="replace").split("\0")))
        return processes

    @property
    def layer_kind(self) -> str:
        """``host``, ``overlay`` or ``copy``."""
        return {"b": "host", "o": "overlay", "c": "copy"}[self._box.kind]

    async def close(self) -> None:
        """Kill everything in the session and free its layer."""
        self.alive = False
        self._box.free()

    def _require_alive(self) -> None:
        if not self.alive:
            raise UsageError("this shell has ended; open another one")

    async def _settled(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._box.prompt)

    async def _prompted(self, seconds: float) -> bool:
        """Wait for the prompt, but not if another program has replaced the shell. Return whether one has."""
        deadline = time.monotonic() + seconds
        while not self._box.prompt.done() and (left := deadline - time.monotonic()) > 0:
            await self._settled(min(_LOOK_SECONDS, left))
            if not self._box.prompt.done() and self._box.replaced():
                await self._settled(min(_KEYS_SECONDS, left))
                return True
        return False

    async def _wait(self, seconds: float, began: float, looks: bool = False) -> ShellOutcome:
        box, replaced = self._box, False
        if self.running and not box.prompt.done():
            try:
                if looks:
                    replaced = await self._prompted(seconds)
                else:
                    await self._settled(seconds)
            except asyncio.CancelledError:
                await self.close()  # the next command would receive the end of this one
                raise
        if not self.running or not box.prompt.done():
            return self._outcome(began, ShellOutcome(running=self.running, replaced=replaced))
        self.running = False
        code = box.prompt.result()
        if code is not None:
            return self._outcome(began, ShellOutcome(exit_code=code))
        self.alive = False
        exit = await self._exited()
        killed = exit.killed_by if exit.killed_by is not KilledBy.CANCELLED else KilledBy.WALL_CLOCK
        return self._outcome(began, ShellOutcome(exit_code=None if killed else exit.code, ended=True, killed_by=killed))

    async def _exited(self) -> Exit:
        with contextlib.suppress(TimeoutError):  # it closes its terminal just before it ends
            async with asyncio.timeout(_GRACE_SECONDS):
                return await asyncio.shield(self._box.exited)
        self._box.kill()
        return await asyncio.shield(self._box.exited)

    def _outcome(self, began: float, how: ShellOutcome) -> ShellOutcome:
        return replace(how, raw=self._box.cut(), dropped=self._box.dropped, seconds=time.monotonic() - began)


@contextlib.contextmanager
def _as_machine_failure() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InfrastructureError(f"writing the files of a task failed: {error}") from error


class Shells:
    """A provider of shells over one root folder. Use it as an async context manager.

    Args:
        limits: What each session may use.
        root: A folder with a whole system. By default the host's ``/usr``, read-only, in a small system of its own.
        users: Let the shell be root among many users, so that ``useradd``, ``chown`` and ``su`` work. ``users_missing()`` of
            ``palestra.sandbox.users`` says whether this machine allows it.
        session_seconds: A session is killed after this time.
        warm: Number of sessions that are started in advance. Each is used once.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        root: str = "",
        users: bool = False,
        session_seconds: float = 3600.0,
        warm: int = 1,
    ) -> None:
        self.limits = limits or SHELL_LIMITS
        require_boxes(self.limits)
        # Not TMPDIR: the uid of a box must be able to reach it.
        self._point = tempfile.mkdtemp(prefix="palestra-shells-", dir="/tmp" if os.geteuid() == 0 else None)  # noqa: S108
        self.profile = ShellProfile(limits=self.limits, root=root, users=users, point=self._point)
        self._pool = ShellPool(self.profile, session_seconds, warm)

    async def __aenter__(self) -> "Shells":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        await self.close()

    async def open(self, files: Sequence[NewFile] = ()) -> Shell:
        """Open a session with ``files`` below its root folder."""
        shell = await self.open_from(-1)
        try:
            shell.put(files)
        except BaseException:
            await shell.close()
            raise
        return shell

    async def open_from(self, source: int, *, left: bool = False) -> Shell:
        """Open a session over a copy of the layer whose folder has the descriptor ``source``.

        With ``left``, this is the layer of a session that an agent may have filled: the copy has room beside its files.
        """
        return Shell(self, await self._pool.open(source, left))

    def owner_of(self, box: ShellBox) -> int:
        """Return the uid to which the files of ``box`` belong if root started it, else 0."""
        return self._pool.owner_of(box)

    @property
    def running(self) -> int:
        """Number of existing sessions, those started in advance included."""
        return self._pool.running

    async def close(self) -> None:
        """Kill every session and wait until the last process has ended."""
        try:
            await self._pool.close()
        finally:
            shutil.rmtree(self._point, ignore_errors=True)


_shells: SharedPerLoop[tuple[Limits, str, bool], Shells] = SharedPerLoop(
    lambda key: Shells(key[0], root=key[1], users=key[2]), lambda shells: shells.close()
)


def shared_shells(limits: Limits | None = None, root: str = "", users: bool = False) -> AbstractAsyncContextManager[Shells]:
    """Share shells among all users on the running loop; the last one to leave closes them."""
    return _shells.use((limits or SHELL_LIMITS, root, users))
