"""Files that are replaced atomically, and bytes that have reached the disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.durable.lock import lock_draft
from palestra.errors import UsageError

__all__ = ["replacing", "sync_file", "sync_folder", "write_whole"]


@contextmanager
def replacing(path: Path, option: str = "--out") -> Iterator[Path]:
    """Yield a draft that becomes ``path`` at the end of the block. After an exception or a crash ``path`` is unchanged.

    Raise ``UsageError`` at once if ``path`` cannot be written, or if another process is writing it. ``option`` is the option
    with which users name the file. A device (``/dev/stdout``) is its own draft.
    """
    place = path.resolve()
    if place.is_dir():
        raise UsageError(f"{path} is a folder; expected a file name: choose another name ({option})")
    if place.exists() and not place.is_file():
        yield place
        return
    draft = place.with_name(f".{place.name}.part")
    with lock_draft(draft, path, option):
        try:
            os.truncate(draft, 0)  # a killed process may have left a draft
            yield draft
            sync_file(draft)
            draft.replace(place)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(place.parent)


def write_whole(path: Path, data: bytes) -> None:
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
