"""One part of a BM25 index: which of its documents fit best.

The score of a document is the sum of its scores for each stem of the query, added in the order of the query. The score for a
stem is Okapi BM25 with tantivy's constants and its numbers of four bytes. As in tantivy, a long document counts as long as the
next shorter of 256 lengths.

The scores of a stem are kept as an array after its first use, and later queries add arrays. That takes tens of microseconds
per stem, however many of 100,000 documents have it. Most questions also have a rare stem, and its documents win. So the
documents with a rare stem are scored first. A document without one scores at most the sum of the highest scores of the frequent
stems. If the best documents score more than that, no other document is looked at. The scores are the same numbers either way,
because each is the same sum in the same order.
"""

import mmap
from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.durable import Inside
from palestra.errors import SchemaError
from palestra.tools.search.documents import Document

__all__ = ["IndexPart", "Scored"]

_MOST_BYTES = 64 * 2**20
"""Memory for the arrays of a part. All are dropped when it is used up."""
_OVERHEAD = 1024
"""Bytes that an entry takes besides its numbers."""
_DENSE = 16
"""A stem has an array over all documents if at least one in 16 documents has it."""
_CANDIDATES = 8
"""The documents with a rare stem are scored first if they are at most one in 8."""
_FEW = 32
"""Up to this number, the best documents are taken one by one."""
_K1, _B = np.float32(1.2), np.float32(0.75)
"""The constants of BM25: how soon more of the same word counts less, and how much the length of a document counts."""
_ONE, _HALF = np.float32(1), np.float32(0.5)


def _steps() -> npt.NDArray[np.int64]:
    """Return the lengths that are told apart: all up to 40, then eight for each doubling of what is above 24."""
    exact = list(range(24))
    return np.array(exact + [24 + (i & 7 if i < 8 else (i & 7 | 8) << ((i >> 3) - 1)) for i in range(256 - len(exact))])


_STEPS = _steps()


class Scored(NamedTuple):
    """A document of a part and its score."""

    score: float
    number: int


class _Column(NamedTuple):
    """The scores of one stem."""

    scores: npt.NDArray[np.float32]
    numbers: npt.NDArray[np.int64] | None
    """The documents that the scores belong to; ``None`` if there is one score for each document of the part."""
    highest: np.float32

    @property
    def size(self) -> int:
        return _OVERHEAD + self.scores.nbytes + (0 if self.numbers is None else self.numbers.nbytes)


class IndexPart:
    """A part, open for reading.

    Args:
        folder: The folder of the part, as ``PartWriter`` writes it.
    """

    def __init__(self, folder: Inside) -> None:
        def saved(name: str) -> npt.NDArray[Any]:
            array: npt.NDArray[Any] = np.load((folder / f"{name}.npy").checked_file(), mmap_mode="r").view(np.ndarray)
            return array

        stems = (folder / "stems.txt").read_bytes().decode().split("\n")[:-1]
        self._stems = {stem: number for number, stem in enumerate(stems)}
        self._starts, self._entries, self._counts = saved("starts"), saved("entries"), saved("counts")
        self._fields = saved("fields")
        with (folder / "documents.bin").open() as file:
            self._bytes_of_documents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        lengths = saved("lengths")
        self._documents = len(lengths)
        entries, width = len(self._entries), len(Document._fields)
        fits = len(self._starts) == len(stems) + 1 and self._starts[-1] == entries == len(self._counts)
        fits = (
            fits and len(self._fields) == self._documents * width + 1 and self._fields[-1] + 1 == len(self._bytes_of_documents)
        )
        if not fits:
            raise ValueError(f"the files of {folder.name} do not fit together")
        average = np.float32(lengths.sum()) / np.float32(self._documents)
        counted = _STEPS[np.searchsorted(_STEPS, lengths, side="right") - 1].astype(np.float32)
        with np.errstate(invalid="ignore"):  # a part without a word has no average
            self._norms: npt.NDArray[np.float32] = _K1 * (_ONE - _B + _B * counted / average)
        self._columns: dict[str, _Column] = {}
        self._spare: list[npt.NDArray[np.float32]] = []
        self._bytes = 0

    def best(self, stems: Sequence[str], k: int) -> list[Scored]:
        """Return the best ``k`` documents, best first; equal scores in the order of the documents."""
        columns = [self._column(stem) for stem in stems]
        total = self._zeros()
        hits = self._best_of_rare(columns, k, total)
        if hits is None:
            for column in columns:
                if column.numbers is None:
                    total += column.scores
                else:
                    total[column.numbers] += column.scores
            hits = _highest(total, k)
            total.fill(0)
        self._spare.append(total)
        return hits

    def _zeros(self) -> npt.NDArray[np.float32]:
        """Return an array of zeros. One that was used before costs no new memory pages. Each thread takes another one."""
        try:
            return self._spare.pop()  # without a look before: another thread may take the last one in between
        except IndexError:
            return np.zeros(self._documents, dtype=np.float32)

    def _best_of_rare(self, columns: Sequence[_Column], k: int, total: npt.NDArray[np.float32]) -> list[Scored] | None:
        """Return the best ``k`` documents if all of them have a rare stem, otherwise ``None``. ``total`` stays zeros."""
        rare = [column.numbers for column in columns if column.numbers is not None]
        size = sum(map(len, rare))
        if k > _FEW or size < k or size * _CANDIDATES > self._documents:
            return None
        numbers = np.concatenate(rare)  # a document may stand here several times: each place then gets the same sum
        bound = np.float32(0)
        for column in columns:
            if column.numbers is None:
                total[numbers] = total[numbers] + column.scores[numbers]
                bound += column.highest
            else:
                total[column.numbers] += column.scores
        scores = total[numbers]
        total[numbers] = 0
        hits = _highest_of(scores, numbers, k)
        return hits if len(hits) == k and hits[-1].score > bound else None

    def document(self, number: int) -> Document:
        """Return a document."""
        width = len(Document._fields)
        ends = self._fields[number * width : (number + 1) * width + 1].tolist()
        try:
            return Document(*[self._bytes_of_documents[a:b].decode() for a, b in pairwise(ends)])
        except UnicodeDecodeError as error:
            raise SchemaError(f"documents.bin of the index is damaged: {error}. Build the index again") from None

    def _column(self, stem: str) -> _Column:
        if (ready := self._columns.get(stem)) is not None:
            return ready
        number = self._stems.get(stem)
        start, end = (0, 0) if number is None else self._starts[number : number + 2].tolist()
        numbers, counts = self._entries[start:end].astype(np.int64), self._counts[start:end].astype(np.float32)
        scores = self._weight(end - start) * (counts / (counts + self._norms[numbers]))
        highest = scores.max(initial=0)
        column = _Column(scores, numbers, highest)
        if (end - start) * _DENSE >= self._documents:
            column = _Column(np.zeros(self._documents, dtype=np.float32), None, highest)
            column.scores[numbers] = scores
        self._keep(stem, column)
        return column

    def _weight(self, having: int) -> np.float32:
        """Return how much a stem tells that ``having`` documents have."""
        rarity = (np.float32(self._documents - having) + _HALF) / (np.float32(having) + _HALF)
        return np.float32(log(_ONE + rarity)) * (_ONE + _K1)

    def _keep(self, stem: str, column: _Column) -> None:
        if self._bytes + column.size > _MOST_BYTES:
            self._columns, self._bytes = {}, 0
        self._columns[stem] = column
        self._bytes += column.size


def _highest(total: npt.NDArray[np.float32], k: int) -> list[Scored]:
    """Return the ``k`` documents with the highest scores above 0; of equal scores the first. ``total`` is used up."""
    if k > _FEW:
        places = np.argsort(-total, kind="stable")[:k]
        return [Scored(float(total[number]), int(number)) for number in places if total[number] > 0]
    hits: list[Scored] = []
    while len(hits) < min(k, len(total)):
        number = int(total.argmax())
        score = float(total[number])
        if score <= 0:
            break
        hits.append(Scored(score, number))
        total[number] = 0
    return hits


def _highest_of(scores: npt.NDArray[np.float32], numbers: npt.NDArray[np.int64], k: int) -> list[Scored]:
    """Return the ``k`` documents with the highest scores above 0; of equal scores the first. ``scores`` is used up."""
    hits: list[Scored] = []
    while len(hits) < k:
        score = scores.max()
        if score <= 0:
            break
        number = numbers[scores == score].min()
        hits.append(Scored(float(score), int(number)))
        scores[numbers == number] = 0
    return hits
