"""What a sandbox offers, whoever provides it.

A ``Sandbox`` runs a job once (``run``) or keeps an interpreter open whose variables live through an episode
(``open_session``). Every job has limits, and what a box did to end is data: an ``Outcome`` says how it ended, who killed it
and what it used. Nothing in an outcome is evidence of anything but what was printed: the box belongs to whoever wrote the
code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TypeVar

from palestra.errors import UsageError

__all__ = ["Judged", "KilledBy", "Limits", "Outcome", "Program", "Sandbox", "Session", "TestLine", "Usage"]

MIB = 2**20


class KilledBy(StrEnum):
    """Who ended a box before its program did."""

    WALL_CLOCK = "wall_clock"
    CPU_TIME = "cpu_time"
    MEMORY = "memory"
    OUTPUT = "output"
    FILES = "files"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a box may use. Every limit is on by default."""

    wall_seconds: float = 10.0
    """Of one job, or of one cell of a session."""
    cpu_seconds: int = 5
    """Of one process of a job. A session has ``session_cpu_seconds`` for all its cells."""
    session_cpu_seconds: int = 120
    process_memory: int = 1024 * MIB
    """Address space of one process."""
    total_memory: int = 1024 * MIB
    """Of all processes together, watched twenty times a second."""
    file_bytes: int = 16 * MIB
    """Of one file."""
    disk_bytes: int = 64 * MIB
    """Of the work folder and ``/tmp`` together."""
    shared_memory: int = 16 * MIB
    """Of ``/dev/shm``."""
    files: int = 20_000
    """Inodes of each writable file system, watched."""
    open_files: int = 64
    processes: int = 48
    kept_output: int = MIB
    """How much of what is printed is kept; the rest is counted and dropped."""
    output: int = 4 * MIB
    """How much may be printed before the box is killed."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise UsageError(f"the limit {name} must be above 0, got {value}")


@dataclass(frozen=True, kw_only=True)
class Program:
    """One job: either Python ``code`` or a ``command``, with what it may read."""

    code: str | None = None
    command: Sequence[str] = ()
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files to put into the work folder first: relative path → content."""
    wanted: Sequence[str] = ()
    """Files to bring out of the work folder afterwards, if they are there, regular and not too large."""
    wall_seconds: float | None = None
    """A deadline of its own, instead of the limits' one."""

    def __post_init__(self) -> None:
        if (self.code is None) == (not self.command):
            raise UsageError("a program is either code or a command")
        for path in (*self.files, *self.wanted):
            check_relative(path)


@dataclass(frozen=True)
class Usage:
    """What a job used, as the kernel counts it."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    """``None`` if it was killed. It is the program's word, not evidence."""
    killed_by: KilledBy | None = None
    dropped_output: int = 0
    """Bytes that were printed beyond what is kept."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    usage: Usage = Usage()

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, with code 0."""
        return self.exit_code == 0 and self.killed_by is None

    @property
    def text(self) -> str:
        """Standard output, then standard error, as text."""
        return (self.stdout + self.stderr).decode(errors="replace")


_S = TypeVar("_S")


class _Closing(ABC):
    """``async with`` that closes."""

    async def __aenter__(self: _S) -> _S:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Kill whatever still runs and free everything."""


class Session(_Closing):
    """An interpreter that stays: variables, files and imports live from cell to cell."""

    @abstractmethod
    async def run(self, code: str, *, wall_seconds: float | None = None) -> Outcome:
        """Run one cell; the value of a last expression is printed. ``exit_code`` is 1 if it raised.

        A cell that breaks a limit, or ends the interpreter, ends the session: ``alive`` is false afterwards.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether another cell can be run."""

    @abstractmethod
    async def put(self, files: Mapping[str, bytes]) -> None:
        """Write files into the work folder."""

    @abstractmethod
    async def fetch(self, path: str) -> bytes:
        """A regular file of the work folder; ``FileNotFoundError`` or ``PermissionError`` if it is not to be had."""


class TestLine(_Closing):
    """A candidate in a box, to which inputs are given one at a time, each to a fresh process."""

    __test__ = False  # not a test, whatever pytest makes of the name

    @abstractmethod
    async def ask(self, given: bytes | None, *, wall_seconds: float | None = None) -> "Judged":
        """What comes back for ``given`` (``None`` only listens). No answer in time ends the box."""


@dataclass(frozen=True)
class Judged:
    """What came back from a box that was asked: written by an enemy until proven otherwise."""

    frame: bytes | None
    """A letter for its kind, then its content; ``None`` if the box ended instead."""
    problem: str = ""
    """Why there is none, for people."""
    killed_by: KilledBy | None = None


class Sandbox(_Closing):
    """A provider of boxes."""

    name: str
    limits: Limits

    @abstractmethod
    async def run(self, program: Program) -> Outcome:
        """Run ``program`` in a fresh box. Cancelling the call kills the box."""

    @abstractmethod
    async def open_session(self, files: Mapping[str, bytes] | None = None) -> Session:
        """A fresh interpreter."""

    @abstractmethod
    async def open_tests(self, kind: bytes, fields: Sequence[bytes]) -> TestLine:
        """A box for the judge (see ``runner``: ``F`` calls a function, ``I`` runs a program, ``T`` runs trusted tests)."""


def check_relative(path: str) -> None:
    """Refuse names that point out of the work folder."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts) or len(path) > 1024:
        raise UsageError(f"{path!r} is not a relative path below the work folder")
