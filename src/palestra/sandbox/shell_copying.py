"""Copy the files of one layer into another, as ``cp -a`` would.

The agent chooses the depth: the walk takes two descriptors and no frame per level, and no path is longer than one name. ``cp``
names every file by its whole path, which took more than half a minute for 2,500 nested folders.

Part of the launcher: standard library only.
"""

import contextlib
import os
import stat
from collections.abc import Callable

__all__ = ["copy_tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def copy_tree(source: str, target: str, owner: Callable[[int], int]) -> None:
    """Copy everything in the folder ``source`` into the empty folder ``target``: contents, modes, times, links and marks.

    No other process may change either of them.

    Args:
        source: A folder.
        target: Another one.
        owner: Returns the user or group of a copy, given that of the original.
    """
    walk = _Walk(source, target, owner)
    try:
        pending = [walk.copy_entries()]  # the folders that are left to copy, per level
        while pending:
            if pending[-1]:
                walk.descend(pending[-1].pop())
                pending.append(walk.copy_entries())
            else:
                pending.pop()
                walk.finish_folder()
                if pending:
                    walk.ascend()
    finally:
        walk.close()


class _Walk:
    """A place in both trees."""

    def __init__(self, source: str, target: str, owner: Callable[[int], int]) -> None:
        self._owner = owner
        self._path: list[str] = []
        self._linked: dict[int, str] = {}
        """Files with several names, by their number: where the first copy is."""
        self._source = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._target = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._top = os.dup(self._target)

    def close(self) -> None:
        for fd in (self._source, self._target, self._top):
            os.close(fd)

    def descend(self, name: str) -> None:
        """Make the folder ``name``, and go there."""
        os.mkdir(name, 0o700, dir_fd=self._target)
        self._move(name)
        self._path.append(name)

    def ascend(self) -> None:
        """Go to the folder above."""
        self._move("..")
        self._path.pop()

    def _move(self, name: str) -> None:
        for side in ("_source", "_target"):
            old = getattr(self, side)
            setattr(self, side, os.open(name, _FOLDER, dir_fd=old))
            os.close(old)

    def copy_entries(self) -> list[str]:
        """Copy what is in this folder, and return the names of its folders, which are not copied."""
        folders = []
        for name in os.listdir(self._source):
            status = os.stat(name, dir_fd=self._source, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif status.st_nlink < 2 or not self._link(name, status.st_ino):
                self._copy(name, status)
        return folders

    def _link(self, name: str, number: int) -> bool:
        """Make another name of a file that is copied already. Return false if this is its first name, or not possible."""
        first = self._linked.setdefault(number, "/".join([*self._path, name]))
        try:
            os.link(first, name, src_dir_fd=self._top, dst_dir_fd=self._target, follow_symlinks=False)
        except OSError:  # missing, or its path is too long: another copy then
            return False
        return True

    def _copy(self, name: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(name, dir_fd=self._source), name, dir_fd=self._target)
        elif stat.S_ISREG(status.st_mode):
            self._copy_content(name, status.st_size)
        else:  # a pipe, a socket, or an overlay's mark of a removed file
            os.mknod(name, status.st_mode, status.st_rdev, dir_fd=self._target)
        user, group = self._owner(status.st_uid), self._owner(status.st_gid)
        os.chown(name, user, group, dir_fd=self._target, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=self._target)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(name, ns=times, dir_fd=self._target, follow_symlinks=False)

    def _copy_content(self, name: str, size: int) -> None:
        with contextlib.ExitStack() as opened:
            old = os.open(name, _OLD, dir_fd=self._source)
            opened.callback(os.close, old)
            new = os.open(name, _NEW, 0o600, dir_fd=self._target)
            opened.callback(os.close, new)
            _pour(old, new, size)
            _copy_marks(old, new)

    def finish_folder(self) -> None:
        """Give this folder its owner, mode and times, after everything has been written into it."""
        status = os.fstat(self._source)
        os.fchown(self._target, self._owner(status.st_uid), self._owner(status.st_gid))
        os.fchmod(self._target, stat.S_IMODE(status.st_mode))
        _copy_marks(self._source, self._target)
        os.utime(self._target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _pour(old: int, new: int, size: int) -> None:
    """Copy the content of a file without its holes: a file of any size may have no content at all."""
    place = 0
    while place < size:
        try:
            place = os.lseek(old, place, os.SEEK_DATA)
        except OSError:  # nothing but a hole follows
            break
        end = os.lseek(old, place, os.SEEK_HOLE)
        os.lseek(new, place, os.SEEK_SET)
        while place < end and (sent := os.sendfile(new, old, place, end - place)):
            place += sent
    os.ftruncate(new, size)


def _copy_marks(old: int, new: int) -> None:
    """Copy the extended attributes that this process may set: an overlay marks folders by them."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(old):
            with contextlib.suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
