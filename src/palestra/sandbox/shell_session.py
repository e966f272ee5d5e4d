"""An open shell, wherever it runs: the interface of a session, and the turns that all of them share.

``run`` returns when the command has ended, or with what the command has printed so far when its time is over; the command then
still runs, and ``send`` and ``interrupt`` reach it. The methods about files and processes block: for microseconds in a box, and
for tenths of a second in a container. Call them in a thread if the session may be a container's.
"""

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TypeVar

from palestra.errors import InfrastructureError, PalestraError, UsageError
from palestra.sandbox.box import Exit
from palestra.sandbox.contract import KilledBy, Limits
from palestra.sandbox.layers import NewFile
from palestra.sandbox.screen import clean
from palestra.sandbox.shell_terminal import ShellTerminal

__all__ = ["MOST_COMMAND_BYTES", "Ruined", "ShellOutcome", "ShellSession"]

MOST_COMMAND_BYTES = 60_000
"""Bytes of the longest command: it has to fit into a pipe."""
_GRACE_SECONDS = 1.0
_KEYS_SECONDS = 0.5
_LOOK_SECONDS = 0.25
"""Seconds between two looks at whether a command has replaced the shell."""
_Self = TypeVar("_Self", bound="ShellSession")


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


class Ruined(PalestraError):
    """The agent has left its box or container in a state in which no result can be looked for. That is the agent's result."""


class ShellSession(ABC):
    """One session. Close it, or use it as an async context manager."""

    def __init__(self, terminal: ShellTerminal, limits: Limits) -> None:
        self._terminal = terminal
        self.limits = limits
        self.running = False
        """Whether a command still runs."""
        self.alive = True
        self.became = False
        """Whether the shell has become another user than the first."""
        terminal.data.clear()

    async def __aenter__(self: _Self) -> _Self:
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
        self._terminal.begin(written)
        return await self._wait(wall_seconds or self.limits.wall_seconds, began, looks=True)

    async def send(self, keys: str, *, wall_seconds: float = _KEYS_SECONDS) -> ShellOutcome:
        """Type ``keys`` for the running command, and return what it prints within ``wall_seconds``."""
        self._require_alive()
        if not self.running:
            raise UsageError("no command runs in this shell: use run()")
        self._terminal.type(keys.encode(errors="replace")[:4000])
        return await self._wait(wall_seconds, time.monotonic())

    async def interrupt(self) -> ShellOutcome:
        """Press Ctrl-C. If the command ignores that, kill it; if the shell itself hangs, kill the session."""
        self._require_alive()
        began = time.monotonic()
        if self.running:
            self._terminal.type(b"\x03")
            await self._settled(_GRACE_SECONDS)
        for _ in range(3):
            if not self.running or self._terminal.prompt.done():
                break
            self._terminal.kill_jobs()
            await self._settled(_GRACE_SECONDS)
        if self.running and not self._terminal.prompt.done():
            self._terminal.kill()
        return await self._wait(2 * _GRACE_SECONDS if self.running else 0.0, began)

    async def become(self, words: str, home: str) -> None:
        """Continue as another user of the box, with the exported variables, in the folder ``home``.

        Args:
            words: What runs a command as that user, such as ``setpriv --reuid=1000 --regid=1000 --clear-groups``.
            home: The user's home folder.
        """
        self._require_alive()
        self.running = self.became = True
        self._terminal.become(words, home)
        outcome = await self._wait(self.limits.wall_seconds, time.monotonic())
        if outcome.running or outcome.ended:
            await self.close()
            raise InfrastructureError(f"the shell of another user did not start: {outcome.text.strip()[-300:]}")
        self._terminal.remember_shell()

    @abstractmethod
    async def fork(self) -> "ShellSession":
        """Return another session with a copy of the files, the working folder and the exported variables.

        Raises:
            Unsupported: Processes run in the session, which cannot be copied; or sessions of this kind cannot be forked.
        """

    @abstractmethod
    def put(self, files: Sequence[NewFile]) -> None:
        """Write files below the root folder."""

    @abstractmethod
    def fetch(self, path: str) -> bytes:
        """Return a regular file below the root folder; raise ``FileNotFoundError`` or ``PermissionError`` otherwise."""

    @abstractmethod
    def copy_of(self, path: str) -> list[NewFile]:
        """Return a file or folder for ``put`` of another session; raise ``OSError`` if it is missing or too large."""

    @abstractmethod
    def move_away(self, path: str) -> None:
        """Take whatever stands at ``path`` out of the way; raise ``OSError`` if that is not possible."""

    @abstractmethod
    def is_folder(self, path: str) -> bool:
        """Return whether ``path`` is a folder. A link to one is none."""

    @abstractmethod
    def beside(self) -> list[str]:
        """Return the command lines of the processes that run beside the shell. The processes choose them."""

    @abstractmethod
    async def stop(self) -> None:
        """Kill every process of the session. Its files can still be read and copied.

        Raises:
            Ruined: The agent's processes have taken the files with them, or do not end.
        """

    @abstractmethod
    async def renewed(self) -> "ShellSession":
        """Kill every process, and return a fresh session over the same files, in place of this one, which is closed.

        The new shell executes no file that the agent may have written.

        Raises:
            OSError: Such a file cannot be taken out of the way.
            Ruined: What the agent has left does not allow a new session.
        """

    @abstractmethod
    async def close(self) -> None:
        """Kill everything in the session and free its files."""

    def _require_alive(self) -> None:
        if not self.alive:
            raise UsageError("this shell has ended; open another one")

    async def _settled(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._terminal.prompt)

    async def _prompted(self, seconds: float) -> bool:
        """Wait for the prompt, but not if another program has replaced the shell. Return whether one has."""
        deadline = time.monotonic() + seconds
        while not self._terminal.prompt.done() and (left := deadline - time.monotonic()) > 0:
            await self._settled(min(_LOOK_SECONDS, left))
            if not self._terminal.prompt.done() and self._terminal.replaced():
                await self._settled(min(_KEYS_SECONDS, left))
                return True
        return False

    async def _wait(self, seconds: float, began: float, looks: bool = False) -> ShellOutcome:
        terminal, replaced = self._terminal, False
        if self.running and not terminal.prompt.done():
            try:
                if looks:
                    replaced = await self._prompted(seconds)
                else:
                    await self._settled(seconds)
            except asyncio.CancelledError:
                await self.close()  # the next command would receive the end of this one
                raise
        if not self.running or not terminal.prompt.done():
            return self._outcome(began, ShellOutcome(running=self.running, replaced=replaced))
        self.running = False
        code = terminal.prompt.result()
        if code is not None:
            return self._outcome(began, ShellOutcome(exit_code=code))
        self.alive = False
        exit = await self._exited()
        killed = exit.killed_by if exit.killed_by is not KilledBy.CANCELLED else KilledBy.WALL_CLOCK
        return self._outcome(began, ShellOutcome(exit_code=None if killed else exit.code, ended=True, killed_by=killed))

    async def _exited(self) -> Exit:
        with contextlib.suppress(TimeoutError):  # it closes its terminal just before it ends
            async with asyncio.timeout(_GRACE_SECONDS):
                return await asyncio.shield(self._terminal.exited)
        self._terminal.kill()
        return await asyncio.shield(self._terminal.exited)

    def _outcome(self, began: float, how: ShellOutcome) -> ShellOutcome:
        return replace(how, raw=self._terminal.cut(), dropped=self._terminal.dropped, seconds=time.monotonic() - began)
