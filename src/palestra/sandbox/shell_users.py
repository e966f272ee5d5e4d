"""User namespaces with a range of users, for boxes in which ``useradd``, ``chown`` and ``su`` work.

The box's root and its users are ordinary users of the host: as root, a range of ids that belongs to no account; else this user
itself and the ids that ``/etc/subuid`` gives to it, which only ``newuidmap`` may map. A second namespace inside the first has
the same users. It carries the limit of processes: the kernel counts all users of a namespace together against the limit that
its creator had (Linux 5.14). No further namespace can be made in it.

Part of the launcher: standard library only.
"""

import ctypes
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["COUNT", "enter_range", "first_of_range", "limit_range", "shift_owners", "shifted"]

COUNT = 65536
"""Users of a box."""
_FIRST, _RANGES = 29_100 * COUNT, 36_000
"""Ranges for root's boxes: above the uids of boxes with one user (``profile.first_uid``), and below 2**32."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SET_ID = stat.S_ISUID | stat.S_ISGID
_CLONE_NEWUSER, _DUMPABLE = 0x10000000, 4
_BESIDE = 4
"""Processes beside those of the agent: bubblewrap's two, and those that end while the box starts."""
_SAME = f"0 0 1\n1 1 {COUNT - 1}\n"
"""A line has to lie within one line of the namespace outside, and that of an ordinary user has two."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def first_of_range(pid: int) -> int:
    """Return the uid that is root in the box of the process ``pid``.

    Two boxes may share a range if the numbers of their processes differ by a multiple of 36,000. They still have different
    namespaces of processes and of mounts; only limits that the kernel counts per uid would be common.
    """
    return _FIRST + pid % _RANGES * COUNT


def enter_range(config: dict[str, Any], uid: int) -> None:
    """Become root of a namespace with ``COUNT`` users: those from the uid ``uid`` on, or this user and its own range."""
    if uid:
        _unshare(lambda pid: _write_maps(pid, f"0 {uid} {COUNT}"), lambda: _drop_to(uid))
    else:
        _unshare(lambda pid: _call_helpers(config["users"], pid))
    _drop_to(0)


def limit_range(processes: int) -> None:
    """Enter a second namespace with the same users, whose processes are limited together, and which cannot have others."""
    most = processes + _BESIDE
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    _unshare(lambda pid: _write_maps(pid, _SAME))
    _drop_to(0)
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")


def _drop_to(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _unshare(write: Callable[[int], None], before: Callable[[], None] = lambda: None) -> None:
    """Enter a new user namespace. A process that stays outside writes its users: only such a one may."""
    ready, done = os.pipe(), os.pipe()
    pid = os.getpid()
    helper = os.fork()
    if not helper:
        try:
            os.close(ready[1])
            if os.read(ready[0], 1):
                write(pid)
                os.write(done[1], b"1")
        except OSError as error:
            os.write(done[1], str(error).encode()[:500])
        finally:
            os._exit(0)
    try:
        before()
        if _LIBC.unshare(_CLONE_NEWUSER):
            raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
        _LIBC.prctl(_DUMPABLE, 1, 0, 0, 0)  # else its files below /proc belong to the host's root
        os.write(ready[1], b"1")
        os.close(done[1])
        answer = os.read(done[0], 500)
    finally:
        os.close(ready[1])
        os.waitpid(helper, 0)
        for fd in (ready[0], done[0]):
            os.close(fd)
    if answer != b"1":
        raise OSError(f"no range of users: {answer.decode(errors='replace') or 'the helper has ended'}")


def _write_maps(pid: int, text: str) -> None:
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(text)


def _call_helpers(users: dict[str, Any], pid: int) -> None:
    for program, numbers in users["helpers"]:
        done = subprocess.run([program, str(pid), *map(str, numbers)], capture_output=True, check=False, env={})
        if done.returncode:
            raise OSError(done.stderr.decode(errors="replace").strip()[-300:])


def shift_owners(folder: str, to: int) -> None:
    """Give everything in ``folder`` to the users from ``to`` on, as it belongs to those from the owner of ``folder`` on.

    Links are unfollowed. What belongs to no user of the box, such as the mark of an overlay for a removed file, goes to ``to``.
    The agent chooses the depth: the walk takes one descriptor and no frame per level. No other process may change ``folder``.
    """
    fd = os.open(folder, _FOLDER)
    owners = _Owners(shifted(os.fstat(fd).st_uid, to))
    try:
        owners.shift(".", fd)
        pending = [owners.shift_entries(fd)]  # the folders that are left to visit, per level
        while pending:
            if pending[-1]:
                fd = _moved(fd, pending[-1].pop())
                pending.append(owners.shift_entries(fd))
            else:
                pending.pop()
                fd = _moved(fd, "..") if pending else fd
    finally:
        os.close(fd)


def shifted(first: int, to: int) -> Callable[[int], int]:
    """Return the function from users of a box that begins at ``first`` to those of one that begins at ``to``.

    What belongs to no user of the box goes to ``to``.
    """
    return lambda user: to + (user - first if 0 <= user - first < COUNT else 0)


class _Owners:
    """The change of owners in one tree. A file with several names changes once: its new owner may be no user of the box."""

    def __init__(self, owner: Callable[[int], int]) -> None:
        self._owner = owner
        self._seen: set[tuple[int, int]] = set()
        """Device and number of the files with several names that have their new owner."""

    def shift_entries(self, fd: int) -> list[str]:
        """Give the entries of one folder to their new users, and return the names of those that are folders."""
        return [name for name in os.listdir(fd) if stat.S_ISDIR(self.shift(name, fd))]

    def shift(self, name: str, fd: int) -> int:
        """Give ``name`` of the folder ``fd`` to its new user, and return its mode."""
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
            if (status.st_dev, status.st_ino) in self._seen:
                return status.st_mode
            self._seen.add((status.st_dev, status.st_ino))
        os.chown(name, self._owner(status.st_uid), self._owner(status.st_gid), dir_fd=fd, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode) and status.st_mode & _SET_ID:  # the kernel takes these bits when the owner changes
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=fd)
        return status.st_mode


def _moved(fd: int, name: str) -> int:
    """Open the folder ``name`` of the folder ``fd``, and close ``fd``."""
    try:
        return os.open(name, _FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


if __name__ == "__main__":  # users.run_in_range: the helpers as JSON, and the command
    enter_range({"users": {"helpers": json.loads(sys.argv[1])}}, 0)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - it becomes the command
