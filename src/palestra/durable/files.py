"""Files that are replaced atomically, and bytes that have reached the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.durable.inside import PRIVATE_FILE, Inside, named
from palestra.durable.lock import lock_draft
from palestra.errors import UsageError

__all__ = ["replacing", "sync_file", "sync_folder", "write_whole"]


@contextmanager
def replacing(path: Path | Inside, option: str = "--out") -> Iterator[Path]:
    """Yield a draft that becomes ``path`` at the end of the block. After an exception or a crash ``path`` is unchanged.

    Raise ``UsageError`` at once if ``path`` cannot be written, or if another process is writing it. ``option`` is the option
    with which users name the file. A device (``/dev/stdout``) is its own draft. What is inside a folder is private to the user,
    and no link there is followed.
    """
    inside = isinstance(path, Inside)
    target = path.checked() if isinstance(path, Inside) else path.resolve()
    shown = path.path if isinstance(path, Inside) else path
    if target.is_dir():
        raise UsageError(f"{path} is a folder; expected a file name: choose another name ({option})")
    if target.exists() and not target.is_file():
        if inside:
            raise UsageError(f"{path} is a pipe, a socket or a device, but a file is expected here: rename it or remove it")
        yield target
        return
    draft = target.with_name(f".{target.name}.part")
    with lock_draft(draft, shown, option, PRIVATE_FILE if inside else 0o666):
        try:
            with named(path):
                os.truncate(draft, 0)  # a killed process may have left a draft
                yield draft
                sync_file(draft)
                draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


def write_whole(path: Path | Inside, data: bytes) -> None:
    """Replace the content of ``path`` with ``data``. After a crash the file holds its old content or all of the new one."""
    with replacing(path) as draft:
        draft.write_bytes(data)


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the folder's entries are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
