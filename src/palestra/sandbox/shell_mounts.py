"""Mounts of a shell box that are made before bubblewrap starts: the root folder as the box sees it, its ``/dev``, and the
host's programs if the box has no system of its own.

They hang below a second mount of the layer, so that the layer itself stays free of them and can be copied. bubblewrap takes
the whole tree with one bind mount. Mounts of bubblewrap's own would be made while the caller waits, and bubblewrap reads the
table of all mounts after each; a spare process makes these before.

Part of the launcher: standard library only.
"""

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Sequence

__all__ = [
    "MS_NODEV",
    "MS_NOSUID",
    "MS_PRIVATE",
    "MS_REC",
    "Attributes",
    "check",
    "libc",
    "mount",
    "mount_box",
    "mount_programs",
    "set_attributes",
]

MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 0x1000
_MOUNT_SETATTR = 442  # the same on every architecture
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_CLOSED = _MS_RDONLY | MS_NOSUID | MS_NODEV
"""How the host's programs are mounted. These flags have the same values in mount() and in mount_setattr()."""
_KEPT = 0b1111
"""Flags that a remount must repeat: read-only, nosuid, nodev and noexec. A user namespace may not take them away."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEVICES = ("null", "full", "random", "urandom", "tty")
_OCTAL = re.compile(r"\\([0-7]{3})")
"""How the table of mounts writes blanks and other special characters."""
_LINKS = {"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "fd": "/proc/self/fd"}

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount ``source`` on ``target``."""
    words = [word.encode() or None for word in (source, target, kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), f"mounting {kind or source} on {target}")


def check(result: int, doing: str) -> None:
    """Raise the error of a system call that has failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


class Attributes(ctypes.Structure):
    """What ``set_attributes`` changes: flags to set and to clear, the propagation, and the namespace of an id-mapped mount."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def set_attributes(mounted: int, wanted: Attributes, recursive: bool = False) -> None:
    """Change the attributes of the mount with the descriptor ``mounted``, and if ``recursive``, of everything mounted in it."""
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    check(libc.syscall(_MOUNT_SETATTR, mounted, b"", flags, ctypes.byref(wanted), size), "mount_setattr")


def mount_box(folder: str, point: str, uid: int) -> None:
    """Mount ``folder`` a second time, at ``box`` of the folder ``point``, and a ``/dev`` in it that belongs to ``uid``."""
    box = f"{point}/box"
    mount(folder, box, "", _MS_BIND)
    devices = f"{box}/dev"
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a root folder of a stranger may have a link here
        os.unlink(devices)
    with contextlib.suppress(FileExistsError):
        os.mkdir(devices)
        os.chown(devices, uid, uid)
    identity = f",uid={uid},gid={uid}" if uid else ""
    mount("devices", devices, "tmpfs", MS_NOSUID | MS_NODEV, f"size=4096,mode=755{identity}")
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{devices}/{name}", _MS_RDONLY)  # it can still be written to, as every device
    # A bind mount without "dev" cannot be opened. A shared mapping of /dev/zero would be memory that no limit counts.
    _bind("/dev/zero", f"{devices}/zero", _MS_RDONLY | MS_NODEV)
    for name, target in _LINKS.items():
        os.symlink(target, f"{devices}/{name}")
        os.chown(f"{devices}/{name}", uid, uid, follow_symlinks=False)
    for name in ("pts", "shm"):  # no new terminals: the machine has a limited number of them
        os.mkdir(f"{devices}/{name}")
        os.chown(f"{devices}/{name}", uid, uid)
    mount(f"{point}/shm", f"{devices}/shm", "", _MS_BIND)
    _touch(f"{devices}/console")  # bubblewrap mounts the terminal here
    _remount(devices, _MS_RDONLY)


def mount_programs(paths: Sequence[str], point: str, uid: int) -> None:
    """Mount folders and files of the host read-only at the same paths of the box, with everything mounted in them.

    What stands at these paths may come from another box, and this process may be root of the host: no link is followed.
    """
    for path in filter(os.path.exists, paths):
        path_in_box = f"{point}/box{path}"
        target = _place(f"{point}/box", path, os.path.isdir(path), uid)
        try:
            mount(path, f"/proc/self/fd/{target}", "", _MS_BIND | MS_REC)
        finally:
            os.close(target)
        mounted = os.open(path_in_box, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # now what is mounted, not the place below it
        try:
            _close(mounted, path_in_box)
        finally:
            os.close(mounted)


def _close(mounted: int, target: str) -> None:
    """Make the mount ``mounted`` at ``target`` read-only, with everything mounted in it. Raise if it is still writable."""
    try:
        set_attributes(mounted, Attributes(_CLOSED, 0, 0, 0), recursive=True)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        _close_each(os.path.realpath(target))  # Linux before 5.12
    if not os.fstatvfs(mounted).f_flag & _MS_RDONLY:
        raise OSError(errno.EROFS, f"{target} could not be mounted read-only")


def _close_each(target: str) -> None:
    """Remount ``target``, a path without links, and everything mounted in it, one by one."""
    for path in _mounted_at(target):
        try:
            flags = os.statvfs(path).f_flag & _KEPT
        except (PermissionError, FileNotFoundError, NotADirectoryError):
            continue  # a file system that only its own user may read, or a mount that another one covers: no box reaches it
        mount("none", path, "", _MS_REMOUNT | _MS_BIND | _CLOSED | flags)


def _place(box: str, path: str, is_folder: bool, uid: int) -> int:
    """Return a descriptor of ``path`` below the folder ``box``, which is made if it is missing."""
    *above, name = path.strip("/").split("/")
    fd = os.open(box, _FOLDER)
    for folder in [*above, name] if is_folder else above:
        _make_room(folder, fd, stat.S_IFDIR)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755, dir_fd=fd)
            os.chown(folder, uid, uid, dir_fd=fd, follow_symlinks=False)
        fd = _opened(folder, _FOLDER, fd)
    if is_folder:
        return fd
    _make_room(name, fd, stat.S_IFREG)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444, dir_fd=fd))
        os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)
    return _opened(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, fd)


def _make_room(name: str, folder: int, wanted: int) -> None:
    """Take away what is not of the ``wanted`` kind: the agent of another box may have put it there.

    A folder is renamed, not removed, because the agent may have made one that takes minutes to remove.
    """
    with contextlib.suppress(FileNotFoundError):
        kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if kind == wanted:
            return
        if kind == stat.S_IFDIR:
            os.rename(name, f".{name}-{os.urandom(8).hex()}", src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _opened(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)


def _mounted_at(path: str) -> list[str]:
    """Return ``path`` and everything that is mounted below it, outermost first."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        places = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in file]
    return sorted(mount for mount in places if mount == path or mount.startswith(f"{path}/"))


def _bind(source: str, target: str, flags: int) -> None:
    _touch(target)
    mount(source, target, "", _MS_BIND)
    _remount(target, flags | MS_NOSUID)


def _remount(target: str, flags: int) -> None:
    mount("none", target, "", _MS_REMOUNT | _MS_BIND | flags | os.statvfs(target).f_flag & _KEPT)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
