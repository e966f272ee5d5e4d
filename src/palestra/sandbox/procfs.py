"""Read ``/proc`` and file systems about the processes of a box. No reader fails if a process has just ended.

Part of the launcher: standard library only. Values are read as bytes, because the box chooses some of them.
"""

import contextlib
import os
import resource
import signal

__all__ = [
    "anonymous_bytes",
    "children_of",
    "cpu_seconds",
    "descendants_of",
    "proportional_bytes",
    "read",
    "signal_quietly",
    "sockets_of",
    "used_bytes",
    "used_inodes",
]

PAGE = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MOST_DESCENDANTS = 4096


def read(path: str) -> bytes:
    """Return the content of a small file; nothing if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 2**16)
    except OSError:
        return b""
    finally:
        os.close(fd)


def children_of(pid: int) -> list[int]:
    """Return the child processes of ``pid``, adopted ones included."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for thread in threads for child in read(f"/proc/{pid}/task/{thread}/children").split()]


def descendants_of(pid: int) -> list[int]:
    """Return all processes below ``pid``."""
    descendants: list[int] = []
    pending = [pid]
    while pending and len(descendants) < MOST_DESCENDANTS:
        children = children_of(pending.pop())
        descendants.extend(children)
        pending.extend(children)
    return descendants


def anonymous_bytes(pid: int) -> int:
    """Return the memory of ``pid`` that no file backs. Pages shared with its forks count in full."""
    fields = read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * PAGE if fields else 0


def proportional_bytes(pid: int) -> int:
    """Return the same, with shared pages divided among the processes. Takes up to 10 ms per gigabyte."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return anonymous_bytes(pid)


def sockets_of(pid: int) -> int:
    """Return the number of sockets in the network namespace of ``pid``, unaccepted and in-flight ones included."""
    words = read(f"/proc/{pid}/net/sockstat").split(maxsplit=3)
    return int(words[2]) if len(words) > 2 else 0


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that ``pid`` has used so far."""
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND if fields else 0.0


def used_inodes(fd: int) -> int:
    """Return the number of files on the file system of ``fd``."""
    figures = os.fstatvfs(fd)
    return figures.f_files - figures.f_ffree


def used_bytes(fd: int) -> int:
    """Return the bytes used on the file system of ``fd``, unlinked open files included."""
    figures = os.fstatvfs(fd)
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize


def signal_quietly(pid: int, number: signal.Signals) -> None:
    """Send a signal to ``pid`` if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
