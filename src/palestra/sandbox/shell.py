"""Shells in boxes: bash on a terminal of its own, which stays open over the turns of an episode.

``Shells`` opens sessions over a root folder. Each session writes to a layer of its own, in memory and of limited size, and has
no network. ``ShellSession`` is the interface that sessions in containers share.
"""

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from palestra.errors import InfrastructureError, Unsupported
from palestra.sandbox.contract import Limits
from palestra.sandbox.files import fetch_file
from palestra.sandbox.layers import Entry, NewFile, copy_of, move_away, names_in, read_tree, save_layer, write_files
from palestra.sandbox.procfs import read
from palestra.sandbox.profile import require_boxes
from palestra.sandbox.shell_box import LayerFull, ShellBox, ShellPool
from palestra.sandbox.shell_profile import HOME, NEXT, SHELL_LIMITS, ShellProfile
from palestra.sandbox.shell_session import Ruined, ShellOutcome, ShellSession
from palestra.sharing import SharedPerLoop

__all__ = ["HOME", "SHELL_LIMITS", "NewFile", "Shell", "ShellOutcome", "ShellProcess", "Shells", "shared_shells"]

_RC_FILE, _FORK_FILE = "etc/bash.bashrc", ".palestra-fork"
"""What Debian's bash reads in any case, and what a forked session brings along."""
_STATE = (
    "{ printf 'cd -- %q 2>/dev/null\\n' \"$PWD\"; declare -px; printf '#whole\\n'; } > /.palestra-fork 2>/dev/null; "
    "__restore $__status"
)


class ShellProcess(NamedTuple):
    """A process in a session."""

    pid: int
    """Its number on the host."""
    started: int
    """When it was started, in ticks of the host's clock. With ``pid`` it identifies the process."""
    words: list[str]
    """Its arguments. The process chooses them."""


class Shell(ShellSession):
    """One session in a box."""

    def __init__(self, shells: "Shells", box: ShellBox) -> None:
        super().__init__(box, shells.limits)
        self._shells = shells
        self._box = box

    async def become(self, words: str, home: str) -> None:
        self._require_alive()
        self.put([NewFile(NEXT, self._shells.profile.startup(self._box.following).encode())])
        await super().become(words, home)

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
            if not self._has_written_state():
                raise Unsupported("the layer of this shell is full, so a fork has no room for the shell's variables")
            with self._box.stopped():
                return await self._shells.open_from(self._box.layer)
        except LayerFull:
            raise Unsupported("the layer of this shell is full, so a fork has no room to start") from None
        finally:
            if self.alive and not self.running:
                await self._quietly("rm -f /.palestra-fork; __restore $__status")

    def _has_written_state(self) -> bool:
        try:
            return self.fetch(_FORK_FILE).endswith(b"#whole\n")
        except FileNotFoundError:
            return False

    def _require_quiet(self) -> None:
        if self.running or self._box.processes():
            raise Unsupported("processes run in this shell, and a fork cannot copy them")

    async def _quietly(self, command: str) -> None:
        kept = bytes(self._box.data)
        await self.run(command)
        self._box.data[:0] = kept

    def put(self, files: Sequence[NewFile]) -> None:
        with _as_machine_failure():
            write_files(self._box.view, list(files), self._shells.owner_of(self._box))

    def fetch(self, path: str) -> bytes:
        return fetch_file(self._box.view, path, self.limits.file_bytes)

    def tree(self, folder: str) -> list[Entry]:
        """Return everything below ``folder``, links unfollowed."""
        return read_tree(self._box.view, folder, self.limits.file_bytes)

    def copy_of(self, path: str) -> list[NewFile]:
        return copy_of(self._box.view, path, self.limits.disk_bytes)

    def move_away(self, path: str) -> None:
        move_away(self._box.view, path)

    def is_folder(self, path: str) -> bool:
        above, _, name = path.rpartition("/")
        return any(found == name and stat.S_ISDIR(mode) for found, mode in self.names_in(above))

    def names_in(self, folder: str) -> list[tuple[str, int]]:
        """Return the names and modes in a folder, links unfollowed; nothing if it is missing or not a folder."""
        return names_in(self._box.view, folder)

    async def stop(self) -> None:
        self.alive = self.running = False
        self._box.kill()
        await asyncio.shield(self._box.exited)

    async def save(self, folder: Path) -> None:
        """Kill every process, and copy the layer to ``SAVED`` of the new folder ``folder``. ``Shells.open_from`` opens it."""
        await self.stop()
        await asyncio.to_thread(save_layer, self._box.layer, folder, self._shells.profile.users)

    async def renewed(self) -> "Shell":
        await self.stop()
        kept = self._taken_startup_files()
        try:
            fresh = await self._shells.open_from(self._box.layer, left=True)
        except LayerFull as error:
            raise Ruined(f"no new shell can start over the files of the agent: {error}") from None
        await self.close()
        try:
            fresh.put(kept)
        except BaseException:
            await fresh.close()
            raise
        return fresh

    def _taken_startup_files(self) -> list[NewFile]:
        """Take away the files that a new shell would execute when it starts, and return those that belong to the system."""
        if not self.is_folder("etc"):  # a link of the agent could lead to any such file
            self.move_away("etc")
        try:
            kept = self.copy_of(_RC_FILE)
        except FileNotFoundError:
            kept = []
        for path in (_RC_FILE, _FORK_FILE):
            self.move_away(path)
        return kept

    def beside(self) -> list[str]:
        return [" ".join(process.words) for process in self.processes()]

    def processes(self) -> list[ShellProcess]:
        """Return every process that the shell has started, as the kernel reports them."""
        found = []
        for pid in self._box.processes():
            words, state = read(f"/proc/{pid}/cmdline"), read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            if words and state:  # else it has just ended
                found.append(ShellProcess(pid, int(state[19]), words.rstrip(b"\0").decode(errors="replace").split("\0")))
        return found

    @property
    def layer_kind(self) -> str:
        """``host``, ``overlay`` or ``copy``."""
        return {"b": "host", "o": "overlay", "c": "copy"}[self._box.kind]

    async def close(self) -> None:
        self.alive = False
        self._box.free()


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
        self._point = tempfile.mkdtemp(prefix="palestra-shells-", dir="/tmp" if os.geteuid() == 0 else None)
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
