"""The index of a run: where each episode's line is in ``trajectories.jsonl``, and the summary that the lists show.

With the index, a large run opens without being read again. The index records how many bytes it covers and a fingerprint of the
first and the last of them. If the fingerprint differs, the index is built again; if the file has grown, it is extended. The
index is stored in the user's cache folder and not in the run folder: a run folder from a stranger could contain an index that
hides episodes or shows wrong scores. If the cache folder is not writable, the index stays in memory.
"""

import contextlib
import hashlib
import math
import os
import stat
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from palestra.durable import Inside, read_lines
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.foundation.home import home_folder
from palestra.inference.rendering.vocabulary import VOCABULARY
from palestra.trajectory import Trajectory
from palestra.viewer.about import RunScores, read_about, scores_of
from palestra.viewer.page import RunPage
from palestra.viewer.summary import Columns, Summariser

__all__ = ["RunIndex", "open_runs"]

_VERSION = 3
TRAJECTORIES = "trajectories.jsonl"
METRICS = "metrics.jsonl"
REPORT = "report.html"
_FINGERPRINT_BYTES = 1 << 16
_DEEPEST = 3
"""Levels of folders below a given folder in which runs are searched."""
# Fewer bytes than this are read again in a fraction of a second, so their index is not written to disk.
_WORTH_KEEPING = 1 << 24


class _Stored(msgspec.Struct):
    version: int
    covered: int
    fingerprint: bytes
    ends: bytes
    columns: Columns


class RunIndex:
    """One run. ``refresh`` reads the lines that the stored index does not cover yet."""

    def __init__(self, file: Path | Inside, name: str) -> None:
        self.file = file
        self._folder = file.parent if isinstance(file, Inside) else Inside(file.parent)
        self.name = name
        self.columns = Columns()
        self._ends = array("q")
        self._read_all = False
        self._scored: RunScores | None = None
        self._load()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def page(self) -> RunPage:
        """What the page knows about this run before it opens an episode."""
        read = 1.0 if self._read_all else self._covered / max(self._size, 1)
        metrics = self._beside(METRICS)
        results = self.file if self.file.is_file() else metrics
        about = read_about(self._beside("config.json"), results, report=self._beside(REPORT) is not None)
        columns = msgspec.structs.replace(self.columns, success=self.columns.judged())
        return RunPage(
            self.name, columns, read, metrics is not None, about, self._scores(about.asked) if metrics is None else None
        )

    def _scores(self, asked: int) -> RunScores | None:
        if self._scored is None and self._read_all:
            self._scored = scores_of(self.columns, asked)
        return self._scored

    def line(self, number: int) -> bytes:
        """Return the JSON of one episode."""
        if not 0 <= number < len(self._ends):
            raise IndexError(number)
        start = self._ends[number - 1] if number else 0
        with self.file.open("rb") as file:
            file.seek(start)
            return file.read(self._ends[number] - start).rstrip(b"\n")

    def lines(self) -> Iterator[bytes]:
        """Return the JSON of every episode."""
        return (self.line(number) for number in range(len(self._ends)))

    def search(self, text: str) -> list[int]:
        """Return the numbers of the episodes whose JSON contains exactly ``text``."""
        needle = encode_json(text)[1:-1]
        numbers = []
        with self.file.open("rb") as file:
            for number, end in enumerate(self._ends):
                if needle in file.read(end - file.tell()):
                    numbers.append(number)
        return numbers

    def vocabulary(self) -> bytes:
        """Return the text of every token id as JSON; ``null`` if the folder has no ``vocabulary.json``."""
        file = self._beside(VOCABULARY)
        return b"null" if file is None else file.read_bytes()

    def metrics(self) -> bytes:
        """Return the metrics of every training step as JSON; ``null`` if the folder has no ``metrics.jsonl``."""
        file = self._beside(METRICS)
        if file is None:
            return b"null"
        return encode_json([_numbers(line, file) for line in read_lines(file)])

    def report(self) -> bytes:
        """Return the HTML of the run's report; ``LookupError`` if it has none."""
        file = self._beside(REPORT)
        if file is None:
            raise LookupError(REPORT)
        return file.read_bytes()

    def _beside(self, name: str) -> Inside | None:
        """Return a file of the run, or ``None``. A symbolic link could lead anywhere on this machine, so none is followed."""
        file = self._folder / name
        return file if file.exists() and stat.S_ISREG(file.stat().st_mode) else None

    @property
    def _size(self) -> int:
        # A training run may keep no episodes.
        return self.file.stat().st_size if self.file.exists() else 0

    @property
    def extent(self) -> int:
        """Bytes of the episodes and of the training metrics: it changes while the run is written."""
        metrics = self._beside(METRICS)
        return self._size + (metrics.stat().st_size if metrics is not None else 0)

    # the index

    def refresh(self, seconds: float = math.inf) -> None:
        """Read lines that the index does not cover yet, for about ``seconds``; ``page.read`` is the share covered so far.

        An incomplete last line, which a writer may be about to finish, is left for the next call.
        """
        if self._size < self._covered:
            self.columns, self._ends, self._scored = Columns(), array("q"), None
        if not self._size:
            self._read_all = True
            return
        if self._size > self._covered:
            self._scored = None
        start, until = self._covered, monotonic() + seconds
        summariser = Summariser(self.columns)
        self._read_all = True
        with self.file.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._add(summariser, line)
                if monotonic() > until:
                    self._read_all = False
                    break
        if self._covered - start >= _WORTH_KEEPING:
            self._keep()

    @property
    def _covered(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _add(self, summariser: Summariser, line: bytes) -> None:
        try:
            summariser.add(line)
        except SchemaError as error:
            raise SchemaError(f"{self.file}, line {len(self._ends) + 1}: {error}") from None
        self._ends.append(self._covered + len(line))

    @property
    def _side_file(self) -> Path:
        name = hashlib.blake2b(os.fsencode(_resolved(self.file)), digest_size=16).hexdigest()
        return home_folder("views") / f"{name}.index"

    def _load(self) -> None:
        try:
            stored = msgspec.msgpack.decode(self._side_file.read_bytes(), type=_Stored)
            ends = array("q", stored.ends)
        except (OSError, ValueError, msgspec.MsgspecError):
            return  # no index, or a damaged one: refresh() builds it
        fits = stored.version == _VERSION and bool(ends) and ends[-1] == stored.covered
        if fits and len(ends) == len(stored.columns) and stored.fingerprint == _fingerprint(self.file, stored.covered):
            self.columns, self._ends = stored.columns, ends

    def _keep(self) -> None:
        fingerprint = _fingerprint(self.file, self._covered)
        stored = _Stored(_VERSION, self._covered, fingerprint, self._ends.tobytes(), self.columns)
        draft = self._side_file.with_suffix(f".index-{os.getpid()}")
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(msgspec.msgpack.encode(stored))
            draft.replace(self._side_file)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)  # without an index the run only opens more slowly


def _resolved(file: Path | Inside) -> Path:
    """The path of the run's file, by which its index is found again: another link to the folder is the same run."""
    return file.root.resolve().joinpath(*file.parts) if isinstance(file, Inside) else file.resolve()


def _fingerprint(path: Path | Inside, covered: int) -> bytes:
    """Hash the start and the end of the first ``covered`` bytes; empty if the file is shorter."""
    if not path.exists() or path.stat().st_size < covered:
        return b""
    hasher = hashlib.blake2b(str(covered).encode(), digest_size=16)
    with path.open("rb") as file:
        hasher.update(file.read(min(covered, _FINGERPRINT_BYTES)))
        file.seek(max(covered - _FINGERPRINT_BYTES, 0))
        hasher.update(file.read(min(covered, _FINGERPRINT_BYTES)))
    return hasher.digest()


def _numbers(line: bytes, file: Inside) -> dict[str, float]:
    try:
        metrics = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SchemaError(f"{file}: not the metrics of a training step: {error}") from None
    return {name: value for name, value in metrics.items() if isinstance(value, int | float)}


def _check_first_line(file: Path | Inside) -> None:
    """Refuse a file that holds no trajectories. A run that has just started may be empty or end in half a line."""
    if not file.is_file():
        return
    with file.open("rb") as lines:
        first = lines.readline()
    try:
        if first.endswith(b"\n"):
            decode_json(first, Trajectory)
    except SchemaError as error:
        raise SchemaError(f"{file}, line 1: {error}. Give a run folder, or the trajectories.jsonl of one") from None


def open_runs(paths: Sequence[Path]) -> list[RunIndex]:
    """Open the runs in ``paths``: run folders, folders that contain run folders, or files of trajectories.

    A run folder contains a ``trajectories.jsonl`` or, after training, a ``metrics.jsonl``.
    """
    files = [file for path in paths for file in _run_files(path)]
    for file in files:
        _check_first_line(file)
    names = [_resolved(file).parent.name for file in files]
    return [
        RunIndex(file, name if names.count(name) == 1 else str(file.parent)) for file, name in zip(files, names, strict=True)
    ]


def _run_files(path: Path) -> list[Path | Inside]:
    """Return the trajectory file of the run at ``path``, or those of the runs below it; a training run may lack the file."""
    if path.is_file():
        return [path]
    folders = _folders_below(path, _DEEPEST) if path.is_dir() else []
    if not folders:
        raise UsageError(
            f"{path} is not a run: there is no {path / TRAJECTORIES}. "
            "Give a run folder, a folder that contains run folders, or a file of trajectories"
        )
    return [Inside(folder) / TRAJECTORIES for folder in folders]


def _folders_below(folder: Path, depth: int) -> list[Path]:
    if any((Inside(folder) / name).exists() for name in (TRAJECTORIES, METRICS)):
        return [folder]
    if not depth:
        return []
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and path.name[0] != ".")
    return [run for path in inside for run in _folders_below(path, depth - 1)]
