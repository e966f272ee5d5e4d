"""The threads, open files and child processes of this process. Comparing them before and after shows what was leaked."""

import gc
import os
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

__all__ = ["Footprint", "footprint"]

PATIENCE = 1.0
"""Seconds that a thread or a child process may take to end after ``close``."""


class Footprint(NamedTuple):
    """Resources of this process, by name."""

    threads: frozenset[str]
    files: frozenset[str]
    children: frozenset[str]

    def beyond(self, before: "Footprint") -> "Footprint":
        """Return the resources that ``before`` does not have."""
        return Footprint(self.threads - before.threads, self.files - before.files, self.children - before.children)

    @property
    def most(self) -> int:
        """The size of the largest of the three sets."""
        return max(map(len, self))


def footprint(*, waiting_for: Footprint | None = None) -> Footprint:
    """Return the resources of this process; wait up to ``PATIENCE`` until there are none beyond ``waiting_for``."""
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
    files = set()
    for entry in os.listdir(folder):
        try:
            files.add(f"file {entry} ({os.readlink(folder / entry)})")
        except OSError:  # the descriptor of the listing itself, closed already
            continue
    return frozenset(files)


def _children() -> frozenset[str]:
    children: set[str] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            children.update(f"process {pid}" for pid in listing.read_text().split())
        except OSError:  # the thread has ended
            continue
    return frozenset(children)
