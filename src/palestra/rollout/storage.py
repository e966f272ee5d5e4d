"""Trajectories on disk: one JSON line each, written as they end.

A process can be killed in the middle of a line. The reader passes over such a torn last line, the writer cuts it off before it
goes on; a broken line anywhere else is damage, and is said to be.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from palestra.encoding import decode_json, encode_json
from palestra.errors import SchemaError
from palestra.trajectory import Trajectory, writable

__all__ = ["TrajectoryWriter", "read_trajectories"]


class TrajectoryWriter:
    """Appends trajectories to a file. Each is in the operating system's hands when ``write`` returns."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(self.path)
        self._file: BinaryIO = open(self.path, "ab")  # noqa: SIM115 - closed by close()

    def write(self, trajectory: Trajectory) -> None:
        """Append ``trajectory``. What its environment put into ``info`` and JSON cannot hold is marked, not lost silently."""
        try:
            line = encode_json(trajectory)
        except (TypeError, ValueError, OverflowError):
            line = encode_json(writable(trajectory))
        self._file.write(line + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Make sure that everything has reached the disk."""
        if not self._file.closed:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())

    def __enter__(self) -> "TrajectoryWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """The trajectories of a file, one at a time."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return  # torn: the process that wrote it was killed
            try:
                yield decode_json(line, Trajectory)
            except SchemaError as error:
                raise SchemaError(f"{path}, line {number}: {error}") from None


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        block = 1 << 16
        while end:
            start = max(end - block, 0)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline != -1:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
