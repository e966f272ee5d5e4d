"""Exclusive locks: one process writes into a folder or file; a second one is refused, and the error names the first.

A folder's lock is an ``flock`` on the file ``.lock`` in it. The operating system releases it when the process ends, for
whatever reason, so a stale lock cannot exist. The content of ``.lock`` only names the holder for messages. The file stays in
the folder, because removing it would let two processes lock two different files.

On NFS, Linux turns ``flock`` into a lock on the server, which holds among all machines, unless the folder is mounted with
``nolock`` or ``local_lock``: then the lock holds on one machine only. A folder on a file system without locks is refused.
"""

import errno
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from palestra.durable.inside import PRIVATE_FILE, make_private
from palestra.errors import UsageError

__all__ = ["ANOTHER_FOLDER", "LOCK", "lock_draft", "lock_folder"]

LOCK = ".lock"
ANOTHER_FOLDER = "choose another folder (--out)"

_held: set[int] = set()
"""Descriptors of the locks that this process holds."""


class _Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock."""

    pid: int
    host: str
    command: str
    since: str

    @classmethod
    def this_process(cls) -> "_Holder":
        # Only the program and its subcommand: later arguments may contain an address with a password.
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]) if sys.argv else "python"
        return cls(os.getpid(), socket.gethostname(), command, datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))

    def __str__(self) -> str:
        if self.host == socket.gethostname() and self.pid == os.getpid():
            return f"this process (since {self.since})"
        machine = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"process {self.pid}{machine} ({self.command}, since {self.since})"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock ``folder``, and create it, private to the user, if it does not exist.

    Raise ``UsageError`` if another process holds it, or if it cannot be written.
    """
    try:
        make_private(folder)
    except OSError as error:
        raise UsageError(_not_writable(folder, error, ANOTHER_FOLDER)) from None
    with _locked(folder / LOCK, folder, ANOTHER_FOLDER, PRIVATE_FILE) as descriptor:
        _write_holder(descriptor, msgspec.json.encode(_Holder.this_process()))
        try:
            yield
        finally:
            _write_holder(descriptor, b"")


@contextmanager
def lock_draft(draft: Path, path: Path, option: str, mode: int = 0o666) -> Iterator[None]:
    """Lock ``draft``, which will become ``path``, and create it if it does not exist.

    Raise ``UsageError`` if another process is writing ``path``, or if it cannot be written. ``option`` is the option with which
    users name another file, and ``mode`` has the permissions of a new draft.
    """
    with _locked(draft, path, f"choose another file ({option})", mode):
        yield


@contextmanager
def _locked(file: Path, target: Path, remedy: str, mode: int) -> Iterator[int]:
    """Yield the descriptor of ``file``, locked. Messages name ``target``."""
    descriptor = _lock(file, target, remedy, mode)
    _held.add(descriptor)
    try:
        yield descriptor
    finally:
        _held.discard(descriptor)
        os.close(descriptor)


def _lock(file: Path, target: Path, remedy: str, mode: int) -> int:
    while True:
        try:
            descriptor = _open(file, mode)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise UsageError(f"{file} is a link or a folder, but a file is expected here: remove it, or {remedy}") from None
            raise UsageError(_not_writable(target, error, remedy)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            message = _why_not(error, target, remedy, _holder(descriptor))
            os.close(descriptor)
            raise UsageError(message) from None
        if _is_at(descriptor, file):
            return descriptor
        os.close(descriptor)  # the file was renamed or removed between opening and locking


def _open(file: Path, mode: int) -> int:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise UsageError(f"{file} is a pipe, or has another name elsewhere (a hard link), and is not written: remove it")
    return descriptor


def _not_writable(target: Path, error: OSError, remedy: str) -> str:
    return f"cannot write {target}: {error.strerror}. Make it writable, or {remedy}"


def _why_not(error: OSError, target: Path, remedy: str, holder: _Holder | None) -> str:
    if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
        return f"{target} is in use by {holder or 'another process'}: wait for it to end, stop it, or {remedy}"
    return f"{target} cannot be locked ({error.strerror}), so two processes could write it at once: choose a local disk (--out)"


def _holder(descriptor: int) -> _Holder | None:
    """Return the holder of the lock, if it has written its name already."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=_Holder)
    return None


def _write_holder(descriptor: int, data: bytes) -> None:
    with suppress(OSError):  # on a full disk the lock holds without a name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _leave_to_parent() -> None:
    """In a forked child, close the copies of the parent's locks: a child that outlives its parent would keep holding them."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
