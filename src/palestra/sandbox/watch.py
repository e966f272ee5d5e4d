"""Measure the memory of a box where no control group counts it: cheap figures 20 times per second, exact ones when needed.

It counts anonymous memory, files in memory, and socket buffers, each at its largest size. Other kinds are bounded by
construction: the system call filter refuses shared anonymous memory, larger socket buffers and larger pipes.

The cheap figure counts pages that forks share once per process. Only when it exceeds the limit are these pages divided among
the processes (``Pss``), which takes the kernel up to 10 ms per gigabyte. Therefore one process is measured at a time, orders of
other boxes are handled in between, and the box is stopped meanwhile. It is measured again when it may have grown beyond the
limit, and otherwise at most once per second.

Part of the launcher: standard library only.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

from palestra.sandbox.procfs import anonymous_bytes, proportional_bytes, read, sockets_of, used_bytes

__all__ = ["MemoryWatch", "Watched"]

SECONDS_BETWEEN = 1.0
SOCKET_BYTES = int(read("/proc/sys/net/core/wmem_default") or 212_992) * 5 // 4
"""Bytes that a socket may hold: its buffer, and the part of a last message that exceeds it."""


class Watched(Protocol):
    """What the watch needs to know about a box."""

    init: int
    folders: list[int]
    killed_by: bytes

    def processes(self) -> list[int]:
        """Return all processes inside."""
        ...


B = TypeVar("B", bound=Watched)


class _Figures:
    """The figures that are cheap to read."""

    def __init__(self, box: Watched) -> None:
        sockets = sockets_of(box.init) if box.folders else 0  # without namespaces it shares the host's network
        self.fixed = sum(map(used_bytes, box.folders)) + sockets * SOCKET_BYTES
        """Bytes of files in memory and of sockets."""
        self.anonymous = {pid: anonymous_bytes(pid) for pid in box.processes()}

    def least(self) -> int:
        return self.fixed + max(self.anonymous.values(), default=0)

    def most(self) -> int:
        return self.fixed + sum(self.anonymous.values())


class _Measured:
    """The result of a measurement, with the cheap figures at that time."""

    def __init__(self, total: int, then: _Figures, at: float) -> None:
        self.total = total
        self.then = then
        self.at = at

    def may_have_become(self, now: _Figures) -> int:
        """Return the most that the box can use now. A new page is new to some process."""
        grown = sum(max(0, size - self.then.anonymous.get(pid, 0)) for pid, size in now.anonymous.items())
        return self.total + max(0, now.fixed - self.then.fixed) + grown


class _Measuring(Generic[B]):
    """A measurement in progress."""

    def __init__(self, box: B) -> None:
        self.box = box
        self.figures = _Figures(box)
        self.total = self.figures.fixed
        self.left = list(self.figures.anonymous)


class MemoryWatch(Generic[B]):
    """The memory of all boxes of a launcher."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pending: deque[_Measuring[B]] = deque()
        self._measured: dict[int, _Measured] = {}
        """The last measurement of each box, by the pid of its first process."""

    def measures(self, box: B) -> bool:
        """Return whether ``box`` is being measured."""
        return any(reading.box is box for reading in self.pending)

    def is_over(self, box: B, now: float) -> bool | None:
        """Return whether ``box`` exceeds the limit. ``None``: stop it, call ``begin``, then ``step`` until it is measured."""
        if self.measures(box):
            return False
        figures = _Figures(box)
        if figures.least() > self.limit:
            return True
        if figures.most() <= self.limit:
            return False
        last = self._measured.get(box.init)
        if last is None or now - last.at >= SECONDS_BETWEEN or last.may_have_become(figures) > self.limit:
            return None
        return False

    def begin(self, box: B) -> None:
        """Start to measure ``box``, which has been stopped."""
        self.pending.append(_Measuring(box))

    def step(self, now: float) -> tuple[B, bool]:
        """Measure one process of the first box in the queue. Return the box and whether it exceeds the limit."""
        reading = self.pending[0]
        if reading.left and not reading.box.killed_by:
            reading.total += proportional_bytes(reading.left.pop())
        over = reading.total > self.limit and not reading.box.killed_by
        if over or reading.box.killed_by or not reading.left:
            self.pending.popleft()
            self._measured[reading.box.init] = _Measured(reading.total, reading.figures, now)
        return reading.box, over

    def forget(self, box: B) -> None:
        """Forget a box that is gone."""
        self._measured.pop(box.init, None)
        self.pending = deque(reading for reading in self.pending if reading.box is not box)
