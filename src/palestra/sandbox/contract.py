"""The interface of every sandbox.

A ``Sandbox`` runs a job once (``run``), or keeps an interpreter open whose variables live through an episode
(``open_session``). Every job has limits. An ``Outcome`` reports how a box ended, what killed it and what it used. An outcome
is evidence only of what was printed: the code inside the box controls everything else that the box reports.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import TypeVar

from palestra.errors import UsageError

__all__ = ["Judged", "KilledBy", "Limits", "Outcome", "Program", "ResourceUsage", "Sandbox", "SandboxSession", "TestLine"]

MIB = 2**20


class KilledBy(StrEnum):
    """What ended a box before its program ended."""

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
    """Wall time of one job, or of one cell of a session."""
    cpu_seconds: int = 5
    """CPU time of one process of a job. All cells of a session share ``session_cpu_seconds``."""
    session_cpu_seconds: int = 120
    process_memory: int = 1024 * MIB
    """Address space of one process, in bytes."""
    total_memory: int = 1024 * MIB
    """Memory of all processes, files in memory included, in bytes: by a control group, or watched 20 times per second."""
    file_bytes: int = 16 * MIB
    """Size of one file, in bytes."""
    disk_bytes: int = 64 * MIB
    """Size of the work folder and ``/tmp`` together, in bytes."""
    shared_memory: int = 16 * MIB
    """Size of ``/dev/shm``, in bytes."""
    files: int = 20_000
    """Inodes of each writable file system."""
    open_files: int = 64
    processes: int = 48
    kept_output: int = MIB
    """Bytes of printed output that are kept; the rest is counted and dropped."""
    output: int = 4 * MIB
    """Bytes that may be printed before the box is killed."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise UsageError(f"the limit {name} must be above 0, got {value}")


@dataclass(frozen=True, kw_only=True)
class Program:
    """One job: either Python ``code`` or a ``command``, with its input files."""

    code: str | None = None
    command: Sequence[str] = ()
    stdin: bytes = b""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files to write into the work folder first: relative path → content."""
    wanted: Sequence[str] = ()
    """Files to bring out of the work folder afterwards, if they exist, are regular and not too large."""
    wall_seconds: float | None = None
    """Deadline of this job in seconds, instead of the one in the limits."""

    def __post_init__(self) -> None:
        if (self.code is None) == (not self.command):
            raise UsageError("a program needs either code or a command, not both")
        for path in (*self.files, *self.wanted):
            check_relative(path)


@dataclass(frozen=True)
class ResourceUsage:
    """What a job used, as counted by the kernel."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    """``None`` if the box was killed. The program chooses its exit code, so it is not evidence."""
    killed_by: KilledBy | None = None
    dropped_output: int = 0
    """Bytes that were printed but not kept."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    usage: ResourceUsage = ResourceUsage()

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself, with exit code 0."""
        return self.exit_code == 0 and self.killed_by is None

    @property
    def text(self) -> str:
        """Standard output, then standard error, as text."""
        return (self.stdout + self.stderr).decode(errors="replace")


_S = TypeVar("_S")

Begun = Callable[[], None]
"""Called when the code has its place on the machine and starts to run."""


class _Closing(ABC):
    """An async context manager that closes itself."""

    async def __aenter__(self: _S) -> _S:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None:
        """Kill everything that still runs and free all resources."""


class SandboxSession(_Closing):
    """An interpreter that stays open: variables, files and imports persist from cell to cell."""

    @abstractmethod
    async def run(self, code: str, *, wall_seconds: float | None = None, begun: Begun | None = None) -> Outcome:
        """Run one cell and print the value of a last expression. ``exit_code`` is 1 if the cell raised.

        ``begun`` is called when the cell has its place on the machine and starts to run.

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
        """Return a regular file of the work folder; raise ``FileNotFoundError`` or ``PermissionError`` otherwise."""


class TestLine(_Closing):
    """A candidate program in a box. Each input goes to a fresh process."""

    __test__ = False  # pytest would collect this class by its name

    @abstractmethod
    async def ask(self, given: bytes | None, *, wall_seconds: float | None = None) -> "Judged":
        """Return the box's answer to ``given`` (``None`` only listens). If no answer arrives in time, the box is killed."""


@dataclass(frozen=True)
class Judged:
    """The answer of a judged box. The candidate may have forged it."""

    frame: bytes | None
    """A letter for its kind, then its content; ``None`` if the box ended instead."""
    problem: str = ""
    """Why there is no answer, as text for people."""
    killed_by: KilledBy | None = None


class Sandbox(_Closing):
    """A provider of boxes."""

    name: str
    limits: Limits

    @abstractmethod
    async def run(self, program: Program, *, begun: Begun | None = None) -> Outcome:
        """Run ``program`` in a fresh box. Cancelling the call kills the box.

        ``begun`` is called when the program has a box and a place on the machine, and starts to run.
        """

    @abstractmethod
    async def open_session(self, files: Mapping[str, bytes] | None = None) -> SandboxSession:
        """Open a fresh interpreter."""

    @abstractmethod
    async def open_tests(self, kind: bytes, fields: Sequence[bytes]) -> TestLine:
        """Open a box for the judge (see ``runner``: ``F`` calls a function, ``I`` runs a program, ``T`` runs trusted tests)."""


def check_relative(path: str) -> None:
    """Raise ``UsageError`` if ``path`` points out of the work folder."""
    parts = path.split("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in parts) or len(path) > 1024:
        raise UsageError(f"{path!r} is not a relative path below the work folder")
