"""A run folder's episodes: where each one's line lies in ``trajectories.jsonl``, and what the lists show of it.

The JSONL file is the truth and stays plain. Beside it lies ``trajectories.index``: byte offsets and summary columns, so that a
large run opens without being read. The index says how many bytes it covers and carries a fingerprint of both ends of them; one
that does not fit is made anew, one that is merely behind is extended. A run folder that cannot be written to is indexed in
memory.
"""

import hashlib
import math
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec

from palestra.encoding import encode_json
from palestra.errors import SchemaError, UsageError
from palestra.viewer.page import RunPage
from palestra.viewer.summary import Columns, Summariser

__all__ = ["RunIndex", "open_runs"]

_VERSION = 2
METRICS = "metrics.jsonl"
_FINGERPRINT_BYTES = 1 << 16
# Reading less than this again costs a fraction of a second: no need to write to the folder.
_WORTH_KEEPING = 1 << 24


class _Stored(msgspec.Struct):
    version: int
    covered: int
    fingerprint: bytes
    ends: bytes
    columns: Columns


class RunIndex:
    """One run. What is not in the side file yet is read by ``refresh``."""

    def __init__(self, file: Path, name: str) -> None:
        self.file = file
        self.name = name
        self.columns = Columns()
        self._ends = array("q")
        self._read_all = False
        self._load()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def page(self) -> RunPage:
        """What the page is told of this run."""
        read = 1.0 if self._read_all else self._covered / max(self._size, 1)
        return RunPage(self.name, self.columns, read, trained=self._beside(METRICS).exists())

    def line(self, number: int) -> bytes:
        """The JSON of one episode."""
        if not 0 <= number < len(self._ends):
            raise IndexError(number)
        start = self._ends[number - 1] if number else 0
        with open(self.file, "rb") as file:
            file.seek(start)
            return file.read(self._ends[number] - start).rstrip(b"\n")

    def lines(self) -> Iterator[bytes]:
        """The JSON of every episode."""
        return (self.line(number) for number in range(len(self._ends)))

    def search(self, text: str) -> list[int]:
        """The numbers of the episodes whose JSON holds ``text``, to the letter."""
        needle = encode_json(text)[1:-1]
        found = []
        with open(self.file, "rb") as file:
            for number, end in enumerate(self._ends):
                if needle in file.read(end - file.tell()):
                    found.append(number)
        return found

    def vocabulary(self) -> bytes:
        """JSON of the text of every token id, or ``null`` where the folder has no ``vocabulary.json``."""
        file = self._beside("vocabulary.json")
        return file.read_bytes() if file.exists() else b"null"

    def metrics(self) -> bytes:
        """JSON of the numbers of every training step; ``null`` where the folder has no ``metrics.jsonl``."""
        file = self._beside(METRICS)
        if not file.exists():
            return b"null"
        with open(file, "rb") as lines:
            # A torn last line is one that is being written.
            return encode_json([_numbers(line, file) for line in lines if line.endswith(b"\n")])

    def _beside(self, name: str) -> Path:
        return self.file.with_name(name)

    @property
    def _size(self) -> int:
        # A training run need not have kept an episode.
        return self.file.stat().st_size if self.file.exists() else 0

    # the index

    def refresh(self, seconds: float = math.inf) -> None:
        """Take in what the index does not cover yet, for about ``seconds``; ``page.read`` says how far that was.

        A torn last line (the writer is still at it) waits for the next time.
        """
        if self._size < self._covered:
            self.columns, self._ends = Columns(), array("q")
        if not self._size:
            self._read_all = True
            return
        start, until = self._covered, monotonic() + seconds
        summariser = Summariser(self.columns)
        self._read_all = True
        with open(self.file, "rb") as file:
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
        return self.file.with_suffix(".index")

    def _load(self) -> None:
        try:
            stored = msgspec.msgpack.decode(self._side_file.read_bytes(), type=_Stored)
        except (OSError, msgspec.MsgspecError):
            return  # there is none, or it is torn: it will be made anew
        if stored.version == _VERSION and stored.fingerprint == _fingerprint(self.file, stored.covered):
            self.columns = stored.columns
            self._ends = array("q", stored.ends)

    def _keep(self) -> None:
        fingerprint = _fingerprint(self.file, self._covered)
        stored = _Stored(_VERSION, self._covered, fingerprint, self._ends.tobytes(), self.columns)
        draft = self._side_file.with_suffix(f".index-{os.getpid()}")
        try:
            draft.write_bytes(msgspec.msgpack.encode(stored))
            draft.replace(self._side_file)
        except OSError:
            draft.unlink(missing_ok=True)  # a folder that cannot be written to is only slower to open


def _fingerprint(path: Path, covered: int) -> bytes:
    """Of both ends of the first ``covered`` bytes; empty if the file is shorter."""
    if not path.exists() or path.stat().st_size < covered:
        return b""
    hasher = hashlib.blake2b(str(covered).encode(), digest_size=16)
    with open(path, "rb") as file:
        hasher.update(file.read(min(covered, _FINGERPRINT_BYTES)))
        file.seek(max(covered - _FINGERPRINT_BYTES, 0))
        hasher.update(file.read(min(covered, _FINGERPRINT_BYTES)))
    return hasher.digest()


def _numbers(line: bytes, file: Path) -> dict[str, float]:
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SchemaError(f"{file}: not the numbers of a step: {error}") from None
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def open_runs(paths: Sequence[Path]) -> list[RunIndex]:
    """The runs in ``paths``: folders that hold a ``trajectories.jsonl``, or such files themselves; and training runs."""
    files = [path / "trajectories.jsonl" if path.is_dir() else path for path in paths]
    for path, file in zip(paths, files, strict=True):
        if not file.is_file() and not file.with_name(METRICS).is_file():
            raise UsageError(f"{path} is not a run: there is no {file}. Give a folder with a trajectories.jsonl")
    names = [file.resolve().parent.name for file in files]
    return [
        RunIndex(file, name if names.count(name) == 1 else str(path))
        for path, file, name in zip(paths, files, names, strict=True)
    ]
