"""Mounts of a shell box that are made before bubblewrap starts: the root folder as the box sees it, and its ``/dev``.

They hang below a second mount of the layer, so that the layer itself stays free of them and can be copied. bubblewrap takes
the whole tree with one bind mount. A ``/dev`` of bubblewrap's own would be made while the caller waits; a spare process
makes this one before.

Part of the launcher: standard library only.
"""

import contextlib
import ctypes
import os

__all__ = ["MS_NODEV", "MS_NOSUID", "MS_PRIVATE", "MS_REC", "check", "libc", "mount", "mount_box"]

MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND = 1, 32, 0x1000
_KEPT = 0b1111
"""Flags that a remount must repeat: read-only, nosuid, nodev and noexec. A user namespace may not take them away."""
_DEVICES = ("null", "full", "random", "urandom", "tty")
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


def mount_box(folder: str, point: str, own: int) -> None:
    """Mount ``folder`` a second time, at ``box`` of the folder ``point``, and a ``/dev`` in it that belongs to ``own``."""
    box = f"{point}/box"
    mount(folder, box, "", _MS_BIND)
    devices = f"{box}/dev"
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):  # a root folder of a stranger may have a link here
        os.unlink(devices)
    with contextlib.suppress(FileExistsError):
        os.mkdir(devices)
        os.chown(devices, own, own)
    identity = f",uid={own},gid={own}" if own else ""
    mount("devices", devices, "tmpfs", MS_NOSUID | MS_NODEV, f"size=4096,mode=755{identity}")
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{devices}/{name}", 0)
    # A bind mount without "dev" cannot be opened. A shared mapping of /dev/zero would be memory that no limit counts.
    _bind("/dev/zero", f"{devices}/zero", _MS_RDONLY | MS_NODEV)
    for name, target in _LINKS.items():
        os.symlink(target, f"{devices}/{name}")
        os.chown(f"{devices}/{name}", own, own, follow_symlinks=False)
    for name in ("pts", "shm"):  # no new terminals: the machine has a limited number of them
        os.mkdir(f"{devices}/{name}")
        os.chown(f"{devices}/{name}", own, own)
    mount(f"{point}/shm", f"{devices}/shm", "", _MS_BIND)
    _touch(f"{devices}/console")  # bubblewrap mounts the terminal here
    _remount(devices, _MS_RDONLY)


def _bind(source: str, target: str, flags: int) -> None:
    _touch(target)
    mount(source, target, "", _MS_BIND)
    _remount(target, flags | MS_NOSUID)


def _remount(target: str, flags: int) -> None:
    mount("none", target, "", _MS_REMOUNT | _MS_BIND | flags | os.statvfs(target).f_flag & _KEPT)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
