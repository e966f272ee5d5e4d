"""Append-only files of lines. A process can be killed in the middle of a line; only the last line can be torn.

Readers skip a torn last line, and a writer removes it before it appends, so the next line never continues a torn one.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from palestra.durable.files import replacing
from palestra.durable.inside import Inside, name_file
from palestra.errors import SchemaError

__all__ = ["LineWriter", "keep_lines", "read_lines"]

_BLOCK = 1 << 16


class LineWriter:
    """Append lines to a file. Each line is flushed to the operating system when ``write`` returns, but not synced."""

    def __init__(self, path: Path | Inside) -> None:
        self.path = path
        if isinstance(path, Inside):
            path.parent.mkdir()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        # Unbuffered: a line is one system call, and nothing is left to flush.
        self._file = path.open("ab", buffering=0)
        self._write = self._file.write

    def write(self, line: bytes) -> None:
        """Append ``line``, which must not contain a line break. It survives a killed process, but maybe not a power loss."""
        data = line + b"\n"
        try:
            written = self._write(data)
            while written < len(data):  # after a signal or on a full disk a write may be partial; the next call raises
                written += self._write(data[written:])
        except OSError as error:
            name_file(error, self.path)
            raise

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Wait until all lines are on disk, and close the file."""
        if not self._file.closed:
            with self._file:
                self.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(path: Path | Inside) -> Iterator[bytes]:
    """Yield the complete lines of a file, each with its line break. A torn last line is skipped."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


def keep_lines(path: Inside, wanted: Callable[[bytes], bool]) -> str:
    """Remove all lines from the first one that is torn or not ``wanted``. A crash leaves either the old file or the new one.

    A line that ``wanted`` finds damaged, by raising ``SchemaError``, is left out. Then a copy of the old file stays beside it,
    and its name is returned; otherwise an empty text.
    """
    if not path.exists():
        return ""
    damaged = False
    with replacing(path) as draft, draft.open("wb") as new:
        for line in read_lines(path):
            try:
                if not wanted(line):
                    break
            except SchemaError:
                damaged = True
                continue
            new.write(line)
        new.flush()
        aside = path.aside() if damaged else None
        if aside is not None:
            with path.open() as old, aside.open("xb") as kept:
                shutil.copyfileobj(old, kept)
                kept.flush()
                os.fsync(kept.fileno())
    return "" if aside is None else aside.name


def _cut_torn_line(path: Path | Inside) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(end - _BLOCK, 0)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline != -1:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
