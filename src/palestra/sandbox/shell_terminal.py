"""The terminal of a shell, seen from the host: commands go in, output and marks come out.

At each prompt the shell prints a mark: an escape sequence with a random word, the number of the command and its exit code. The
terminal removes marks from the output, keeps the first and the last part of a long one, and interrupts a command that prints
too much. A subclass knows where the shell runs, and how a command reaches it.
"""

import asyncio
import contextlib
import os
import re
from abc import ABC, abstractmethod

from palestra.sandbox.box import Exit
from palestra.sandbox.contract import Limits

__all__ = ["COLUMNS", "ROWS", "Prompt", "ShellTerminal", "mark_of"]

ROWS, COLUMNS = 40, 120
_READ_BYTES = 2**16
_LONGEST_MARK = 64

_MARK = "\x1b]7717;"

Prompt = int | None
"""The exit code of the command that the shell has ended, or ``None`` if the shell itself has ended."""


def mark_of(word: str) -> str:
    """Return what a shell prints at its prompt, before the number of the command, the exit code and a BEL."""
    return f"{_MARK}{word};"


class ShellTerminal(ABC):
    """One started shell.

    Args:
        word: The random word in the marks of this shell.
        limits: How much output is kept, and how much a command may print.
    """

    def __init__(self, word: str, limits: Limits) -> None:
        self.master = -1
        """The descriptor of the terminal's outer end. It does not block."""
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.total = 0
        self.data = bytearray()
        """What the terminal has shown and no caller has taken."""
        self.dropped = 0
        self.flooded = False
        """Whether the command has printed more than it may, and was interrupted."""
        self.prompt: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()
        self._limits = limits
        self._scanned = 0
        self._mark = re.compile(re.escape(mark_of(word).encode()) + rb"(\d{1,9});(\d{1,3})\x07")
        self._command = 0
        """The number of the current command. Input that no program read is a command to bash, and its prompt must not count."""

    @abstractmethod
    def begin(self, command: bytes) -> None:
        """Let the shell run ``command``. Its output and exit code arrive later."""

    @abstractmethod
    def become(self, words: str, home: str) -> None:
        """Let another shell take the place of this one, started by ``words``. Its first prompt is the end of the command."""

    @abstractmethod
    def replaced(self) -> bool:
        """Return whether another program has taken the place of the shell, as after ``exec``. It does not read commands."""

    @abstractmethod
    def remember_shell(self) -> None:
        """Note that the program which waits at the prompt is the shell."""

    @abstractmethod
    def kill_jobs(self) -> None:
        """Kill everything that the shell has started."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the shell and everything that it has started."""

    @abstractmethod
    def free(self) -> None:
        """Kill the shell if it still runs, and close every descriptor."""

    def cut(self) -> bytes:
        """Return the output that no caller has taken, without the beginning of a mark."""
        start = self.data.rfind(_MARK.encode(), max(0, len(self.data) - _LONGEST_MARK))
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

    def _next_command(self) -> int:
        """Forget the last command, and return the number of the next one."""
        self.prompt = asyncio.get_running_loop().create_future()
        self._command += 1
        self._scanned = self.total = self.dropped = 0
        self.flooded = False
        return self._command

    def _find_mark(self) -> None:
        start = max(0, self._scanned - _LONGEST_MARK)
        while (found := self._mark.search(self.data, start)) is not None:
            start, end, number, code = found.start(), found.end(), int(found[1]), int(found[2])
            del found, self.data[start:end]
            if number == self._command:
                self._settle(code)
        self._scanned = len(self.data)

    def _bound(self) -> None:
        """Keep the first and the last part of a long output."""
        kept = self._limits.kept_output
        excess = len(self.data) - kept
        if excess > _READ_BYTES:
            del self.data[kept // 2 : kept // 2 + excess]
            self.dropped += excess
            self._scanned = len(self.data)
        if self.total > self._limits.output and not self.flooded and not self.prompt.done():
            self.flooded = True
            self.type(b"\x03")

    def _settle(self, code: Prompt) -> None:
        if not self.prompt.done():
            self.prompt.set_result(code)
