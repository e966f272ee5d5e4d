"""Copy the files of one layer into another, as ``cp -a`` would.

The agent chooses the depth: the walk takes two descriptors and no frame per level, and no path is longer than one name. ``cp``
names every file by its whole path, which took more than half a minute for 2,500 nested folders.

The copier may read files of the host that the agent may not. So the walk trusts no name: it follows no link, stays on the file
system of the source, and checks that ``..`` leads to the folder from which it came. A process that moves a folder during the
copy makes the copy fail.

Part of the launcher: standard library only.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable

__all__ = ["copy_tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LONGEST_PATH = 4095
"""Bytes of the longest path that the kernel takes."""
_MOST_REMEMBERED = 2**24
"""Bytes of paths of linked files that a walk remembers. The agent chooses their number and length."""


def copy_tree(source: str, target: str, owner: Callable[[int], int]) -> None:
    """Copy everything in the folder ``source`` into the empty folder ``target``: contents, modes, times, links and marks.

    No other process may change either of them. If one moves folders of ``source``, nothing outside of it is read.

    Args:
        source: A folder.
        target: Another one.
        owner: Returns the user or group of a copy, given that of the original.

    Raises:
        OSError: The copy has no room, a folder lies on another file system, or another process has moved one.
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


class _Place:
    """A folder in one tree. The folders above it are known by their numbers."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._way = [_identity(os.fstat(self.fd))]

    def descend(self, name: str) -> None:
        self._way.append(self._move(name))
        if self._way[-1][0] != self._way[0][0]:
            raise OSError(errno.EXDEV, "a folder lies on another file system", name)

    def ascend(self) -> None:
        self._way.pop()
        if self._move("..") != self._way[-1]:
            raise OSError(errno.ESTALE, "a process has moved a folder while it was copied")

    def _move(self, name: str) -> tuple[int, int]:
        old, self.fd = self.fd, os.open(name, _FOLDER, dir_fd=self.fd)
        os.close(old)
        return _identity(os.fstat(self.fd))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class _Walk:
    """A place in both trees."""

    def __init__(self, source: str, target: str, owner: Callable[[int], int]) -> None:
        self._owner = owner
        self._path: list[str] = []
        self._length = 0
        """Bytes of the path, with a slash after every name."""
        self._linked: dict[tuple[int, int], str] = {}
        """Files with several names, by their device and number: where the first copy is."""
        self._room = _MOST_REMEMBERED
        self._source = _Place(source)
        self._target = _Place(target)
        self._top = os.dup(self._target.fd)

    def close(self) -> None:
        for fd in (self._source.fd, self._target.fd, self._top):
            os.close(fd)

    def descend(self, name: str) -> None:
        """Make the folder ``name``, and go there."""
        os.mkdir(name, 0o700, dir_fd=self._target.fd)
        self._source.descend(name)
        self._target.descend(name)
        self._path.append(name)
        self._length += len(os.fsencode(name)) + 1

    def ascend(self) -> None:
        """Go to the folder above."""
        self._source.ascend()
        self._target.ascend()
        self._length -= len(os.fsencode(self._path.pop())) + 1

    def copy_entries(self) -> list[str]:
        """Copy what is in this folder, and return the names of its folders, which are not copied."""
        folders = []
        for name in os.listdir(self._source.fd):
            status = os.stat(name, dir_fd=self._source.fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
            elif status.st_nlink < 2 or not self._link(name, _identity(status)):
                self._copy(name, status)
        return folders

    def _link(self, name: str, file: tuple[int, int]) -> bool:
        """Make another name of a file that is copied already. Return false if the file has to be copied."""
        if file not in self._linked:
            self._remember(name, file)
            return False
        try:
            os.link(self._linked[file], name, src_dir_fd=self._top, dst_dir_fd=self._target.fd, follow_symlinks=False)
        except OSError:  # the file system has no more names for it: another copy then
            return False
        return True

    def _remember(self, name: str, file: tuple[int, int]) -> None:
        """Note where the first copy of ``file`` is. If its path is too long, the next name becomes another copy."""
        length = self._length + len(os.fsencode(name))
        if length <= min(_LONGEST_PATH, self._room):
            self._linked[file] = "/".join([*self._path, name])
            self._room -= length

    def _copy(self, name: str, status: os.stat_result) -> None:
        user, group = self._owner(status.st_uid), self._owner(status.st_gid)
        if stat.S_ISREG(status.st_mode):
            self._copy_file(name, status.st_size, user, group)
        else:
            if stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(name, dir_fd=self._source.fd), name, dir_fd=self._target.fd)
            else:  # a pipe, a socket, or an overlay's mark of a removed file
                os.mknod(name, status.st_mode, status.st_rdev, dir_fd=self._target.fd)
            os.chown(name, user, group, dir_fd=self._target.fd, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=self._target.fd)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(name, ns=times, dir_fd=self._target.fd, follow_symlinks=False)

    def _copy_file(self, name: str, size: int, user: int, group: int) -> None:
        with contextlib.ExitStack() as opened:
            old = os.open(name, _OLD, dir_fd=self._source.fd)
            opened.callback(os.close, old)
            new = os.open(name, _NEW, 0o600, dir_fd=self._target.fd)
            opened.callback(os.close, new)
            _pour(old, new, size)
            os.fchown(new, user, group)  # before the marks: the kernel takes capabilities from a file that changes its owner
            _copy_marks(old, new)

    def finish_folder(self) -> None:
        """Give this folder its owner, mode and times, after everything has been written into it."""
        status = os.fstat(self._source.fd)
        os.fchown(self._target.fd, self._owner(status.st_uid), self._owner(status.st_gid))
        os.fchmod(self._target.fd, stat.S_IMODE(status.st_mode))
        _copy_marks(self._source.fd, self._target.fd)
        os.utime(self._target.fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def _pour(old: int, new: int, size: int) -> None:
    """Copy the content of a file without its holes: a file of any size may have no content at all."""
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(old, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            break  # nothing but a hole follows
        end = os.lseek(old, offset, os.SEEK_HOLE)
        os.lseek(new, offset, os.SEEK_SET)
        while offset < end and (sent := os.sendfile(new, old, offset, end - offset)):
            offset += sent
    os.ftruncate(new, size)


def _copy_marks(old: int, new: int) -> None:
    """Copy the extended attributes that this process may set: an overlay marks folders by them."""
    with contextlib.suppress(OSError):
        for name in os.listxattr(old):
            with contextlib.suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
