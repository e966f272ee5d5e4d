"""Read a file out of a box: it must lie below the work folder, be regular, and not be too large.

``openat2`` with ``RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS`` refuses every path that
leaves the folder in a single system call, so no race is possible.
"""

import ctypes
import errno
import os
import platform
import stat

from palestra.errors import InfrastructureError
from palestra.sandbox.contract import check_relative

__all__ = ["fetch_file"]

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE = 0x01 | 0x02 | 0x04 | 0x08  # NO_XDEV, NO_MAGICLINKS, NO_SYMLINKS, BENEATH


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True) if platform.system() == "Linux" else None


def fetch_file(folder: int, path: str, limit: int) -> bytes:
    """Return the regular file ``path`` below the directory descriptor ``folder``, if it has at most ``limit`` bytes."""
    check_relative(path)
    # Non-blocking, because opening a FIFO would block.
    fd = _open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "not a regular file", path)
        if status.st_size > limit:
            raise PermissionError(errno.EFBIG, f"the file has {status.st_size} bytes; at most {limit} may leave the box", path)
        with os.fdopen(os.dup(fd), "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:  # the file grew while it was read
            raise PermissionError(errno.EFBIG, f"the file has more than {limit} bytes", path)
        return content
    finally:
        os.close(fd)


def _open_beneath(folder: int, path: str, flags: int) -> int:
    if _libc is None:
        raise InfrastructureError("reading files out of a box works on Linux only")
    how = _OpenHow(flags, 0, _RESOLVE)
    fd: int = _libc.syscall(_SYS_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number == errno.ENOSYS:
        raise InfrastructureError("this kernel has no openat2 (Linux 5.6), so files cannot leave a box safely")
    raise (FileNotFoundError if number in (errno.ENOENT, errno.ENOTDIR) else PermissionError)(number, os.strerror(number), path)
