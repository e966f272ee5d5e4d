"""Trajectories on disk: one JSON line each, written as the episodes end.

The last line may be incomplete if the process was killed: the reader skips it, and the writer removes it. A broken line
anywhere else is damage: the reader raises ``SchemaError`` with the number of the line.
"""

from collections.abc import Iterator
from pathlib import Path

from palestra.durable import Inside, LineWriter, read_lines
from palestra.errors import SchemaError
from palestra.foundation.encoding import decode_json
from palestra.trajectory import Trajectory, line_of

__all__ = ["TrajectoryWriter", "read_trajectories"]


class TrajectoryWriter:
    """Appends trajectories to a file. When ``write`` returns, the line is flushed to the operating system, not fsynced."""

    def __init__(self, path: str | Path | Inside) -> None:
        self._lines = LineWriter(Path(path) if isinstance(path, str) else path)

    def write(self, trajectory: Trajectory) -> Trajectory:
        """Append ``trajectory``, and return it as its reader will see it: see ``trajectory.line_of``."""
        line, trajectory = line_of(trajectory)
        self._lines.write(line)
        return trajectory

    def close(self) -> None:
        """Fsync and close the file."""
        self._lines.close()

    def __enter__(self) -> "TrajectoryWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_trajectories(path: str | Path | Inside) -> Iterator[Trajectory]:
    """Read the trajectories of a file, one at a time."""
    for number, line in enumerate(read_lines(Path(path) if isinstance(path, str) else path), start=1):
        try:
            yield decode_json(line, Trajectory)
        except SchemaError as error:
            raise SchemaError(f"{path}, line {number}: {error}") from None
