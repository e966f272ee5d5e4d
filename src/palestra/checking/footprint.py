"""What a process holds: threads, open files, child processes. Compared before and after, it shows what was left behind."""

import gc
import os
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

__all__ = ["Footprint", "footprint"]

PATIENCE = 1.0
"""Seconds that a thread or a child process gets to end by itself after ``close``."""


class Footprint(NamedTuple):
    """What is held, by name."""

    threads: frozenset[str]
    files: frozenset[str]
    children: frozenset[str]

    def beyond(self, before: "Footprint") -> "Footprint":
        """What is here and was not there."""
        return Footprint(self.threads - before.threads, self.files - before.files, self.children - before.children)

    @property
    def most(self) -> int:
        """The size of the largest of the three."""
        return max(map(len, self))


def footprint(*, waiting_for: Footprint | None = None) -> Footprint:
    """What this process holds now; or as soon as it holds nothing beyond ``waiting_for``, if that is within ``PATIENCE``."""
    gc.collect()
    until = monotonic() + PATIENCE
    held = _look()
    while waiting_for is not None and held.beyond(waiting_for).most and monotonic() < until:
        sleep(0.01)
        held = _look()
    return held


def _look() -> Footprint:
    threads = frozenset(f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate())
    return Footprint(threads, _open_files(), _children())


def _open_files() -> frozenset[str]:
    folder = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")
    found = set()
    for entry in os.listdir(folder):
        try:
            found.add(f"file {entry} ({os.readlink(folder / entry)})")
        except OSError:  # the listing's own descriptor, closed by now
            continue
    return frozenset(found)


def _children() -> frozenset[str]:
    found: set[str] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(f"process {pid}" for pid in listing.read_text().split())
        except OSError:  # the thread ended meanwhile
            continue
    return frozenset(found)
