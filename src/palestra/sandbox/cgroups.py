"""Memory limits by control groups, version 1 or 2, where this process may create groups.

A group counts every kind of memory: anonymous, shared, files in memory, socket and pipe buffers. New groups stand beside this
process's own group (version 2, where a group with processes cannot have limited children) or below it (version 1, and at the
root of version 2). A launcher reuses the groups of boxes that have ended, because creating a group takes 1/30 of the time
to start a box.

Part of the launcher: standard library only.
"""

import os
from collections import deque
from functools import cache
from typing import NamedTuple

from palestra.sandbox.procfs import read

__all__ = ["Groups", "Hierarchy", "candidates", "join", "memory_hierarchy"]

_PREFIX = "palestra-"
_LEFT_OVER = 0.05
"""The share of the limit that may still be charged to a group when it is used again."""


class Hierarchy(NamedTuple):
    """A place where groups can be created."""

    version: int
    folder: str


def memory_hierarchy() -> Hierarchy | None:
    """Return where this process may limit memory, or ``None``. It is found by trying, once for each user id."""
    return _tried(os.geteuid())


@cache
def _tried(_user: int) -> Hierarchy | None:
    if not os.path.exists("/proc/self/cgroup"):
        return None
    with open("/proc/self/cgroup") as groups, open("/proc/self/mountinfo") as mounts:
        places = candidates(groups.read(), mounts.read())
    return next((hierarchy for hierarchy in places if _works(hierarchy)), None)


def candidates(groups: str, mounts: str) -> list[Hierarchy]:
    """Return the places to try, best first, from the contents of ``/proc/self/cgroup`` and ``/proc/self/mountinfo``."""
    own_paths = {controller: path for _, names, path in _lines(groups) for controller in names.split(",")}
    hierarchies: list[Hierarchy] = []
    for root, point, kind, options in _mounts(mounts):
        if kind == "cgroup2" and "" in own_paths:
            below = _below(own_paths[""], root)
            if below is not None:
                folder = os.path.normpath(f"{point}/{below}")
                hierarchies += [Hierarchy(2, folder), *([Hierarchy(2, os.path.dirname(folder))] if below else [])]
        elif kind == "cgroup" and "memory" in options and "memory" in own_paths:
            below = _below(own_paths["memory"], root)
            if below is not None:
                hierarchies.append(Hierarchy(1, os.path.normpath(f"{point}/{below}")))
    return sorted(hierarchies, key=lambda hierarchy: -hierarchy.version)


def _lines(groups: str) -> list[list[str]]:
    return [parts for line in groups.splitlines() if len(parts := line.split(":", 2)) == 3]


def _mounts(mounts: str) -> list[tuple[str, str, str, list[str]]]:
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, *options) = before.split(), [*after.split(), "", ""][:3]
        if len(fields) > 4:
            found.append((fields[3], fields[4], kind, ",".join(options).split(",")))
    return found


def _below(path: str, root: str) -> str | None:
    """Return ``path`` relative to ``root``, or ``None`` if it is not below it."""
    if root == "/":
        return path.strip("/")
    return path[len(root) :].strip("/") if path == root or path.startswith(f"{root}/") else None


def _works(hierarchy: Hierarchy) -> bool:
    if not os.access(f"{hierarchy.folder}/cgroup.procs", os.W_OK):
        return False
    try:
        groups = Groups(hierarchy, 2**30, name=f"{_PREFIX}trial-{os.getpid()}")
    except OSError:
        return False
    try:
        return groups.kills(groups.take()) is not None
    except OSError:
        return False
    finally:
        groups.close()


class Groups:
    """The groups of one launcher's boxes, each with the same limit."""

    def __init__(self, hierarchy: Hierarchy, limit: int, name: str = "") -> None:
        self.version, self._parent = hierarchy
        self.limit = limit
        self.folder = f"{self._parent}/{name or f'{_PREFIX}{os.getpid()}'}"
        self._free: deque[str] = deque()
        self._made = 0
        _remove_abandoned(self._parent)
        self._prepare()

    def _prepare(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        if self.version == 2:
            try:
                self._enable(self._parent)
                self._enable(self.folder)
            except OSError:
                os.rmdir(self.folder)
                raise

    @staticmethod
    def _enable(folder: str) -> None:
        """Allow memory limits on the children of ``folder``, unless they are allowed already."""
        with open(f"{folder}/cgroup.subtree_control") as file:
            if "memory" in file.read().split():
                return
        _write(f"{folder}/cgroup.subtree_control", "+memory")

    def take(self) -> str:
        """Return the folder of an empty group."""
        for _ in range(len(self._free)):
            group = self._free.popleft()
            usage = self._usage(group)
            if 0 <= usage <= _LEFT_OVER * self.limit:
                return group
            if usage >= 0:
                self._free.append(group)  # the kernel still frees the files of its last box
        return self._new()

    def _new(self) -> str:
        self._made += 1
        group = f"{self.folder}/{self._made}"
        if not os.path.isdir(self.folder):  # a launcher in another container removed it as abandoned
            self._prepare()
        os.mkdir(group)
        if self.version == 2:
            _write(f"{group}/memory.max", str(self.limit))
            _write_if_there(f"{group}/memory.oom.group", "1")
            _write_if_there(f"{group}/memory.swap.max", "0")
        else:
            _write(f"{group}/memory.limit_in_bytes", str(self.limit))
            _write_if_there(f"{group}/memory.memsw.limit_in_bytes", str(self.limit))
        return group

    def give_back(self, group: str) -> None:
        """Keep ``group``, whose last process has ended, for another box."""
        self._free.append(group)

    def kills(self, group: str) -> int | None:
        """Return how many processes the kernel has ever killed in ``group`` because it was full.

        Return ``None`` if ``group`` is gone (any program may remove it at any time), or if the kernel does not count kills.
        """
        figures = read(f"{group}/{'memory.events' if self.version == 2 else 'memory.oom_control'}").split()
        return int(figures[figures.index(b"oom_kill") + 1]) if b"oom_kill" in figures else None

    def _usage(self, group: str) -> int:
        """Return the bytes charged to ``group``; -1 if it is gone."""
        return int(read(f"{group}/{'memory.current' if self.version == 2 else 'memory.usage_in_bytes'}") or b"-1")

    def close(self) -> None:
        """Remove every group."""
        _remove(self.folder)


def join(group: str) -> None:
    """Move this process into ``group``."""
    _write(f"{group}/cgroup.procs", "0")


def _write(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def _write_if_there(path: str, value: str) -> None:
    if os.path.exists(path):
        _write(path, value)


def _remove_abandoned(parent: str) -> None:
    """Remove the groups of launchers that were killed before they could remove them."""
    for name in os.listdir(parent):
        owner = name.removeprefix(_PREFIX).removeprefix("trial-")
        if name.startswith(_PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            _remove(f"{parent}/{name}")


def _remove(folder: str) -> None:
    try:
        for entry in os.scandir(folder):
            if entry.is_dir():
                _remove(entry.path)
        os.rmdir(folder)
    except OSError:  # still in use, or already removed: the next launcher tries again
        pass
