"""One part of a BM25 index: which of its documents fit best.

The score of a document is the sum of the scores that tantivy gives it for each stem of the query, added in the order of the
query. tantivy would walk through all documents with any of the stems for every query, and most of them have only frequent ones.
So the scores of a stem are kept as an array after its first use, and later queries add arrays. That takes tens of microseconds
per stem, however many of 100,000 documents have it. The first use of a frequent stem takes milliseconds.

In a part with very many documents these arrays would cost more than they save, and tantivy adds the scores.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["WORDS", "Part", "Scored"]

WORDS = "words"
"""The field that is searched."""
_MOST_DOCUMENTS = 200_000
"""The largest part whose scores are kept in arrays."""
_MOST_BYTES = 64 * 2**20
"""Memory for the arrays of a part. All are dropped when it is used up."""
_OVERHEAD = 1024
"""Bytes that an entry takes besides its numbers."""
_DENSE = 16
"""A stem has an array over all documents if at least one in 16 documents has it."""
_FEW = 32
"""Up to this number, the best documents are taken one by one."""


class Scored(NamedTuple):
    """A document of a part and its score."""

    score: float
    number: int


class _Column(NamedTuple):
    """The scores of one stem."""

    scores: npt.NDArray[np.float32]
    numbers: npt.NDArray[np.int64] | None
    """The documents that the scores belong to; ``None`` if there is one score for each document of the part."""

    @property
    def size(self) -> int:
        return _OVERHEAD + self.scores.nbytes + (0 if self.numbers is None else self.numbers.nbytes)


class Part:
    """A part, open for reading.

    Args:
        tantivy: The module.
        folder: The folder of the part.
    """

    def __init__(self, tantivy: Any, folder: Path) -> None:
        self._tantivy = tantivy
        index = tantivy.Index.open(str(folder))
        self._schema = index.schema
        self._searcher = index.searcher()
        self._documents = int(self._searcher.num_docs)
        self._columns: dict[str, _Column] = {}
        self._bytes = 0

    def best(self, stems: Sequence[str], k: int) -> list[Scored]:
        """Return the best ``k`` documents, best first; equal scores in the order of the documents."""
        if self._documents > _MOST_DOCUMENTS:
            should = self._tantivy.Occur.Should
            query = self._tantivy.Query.boolean_query([(should, self._query(stem)) for stem in stems])
            return [Scored(float(score), address.doc) for score, address in self._hits(query, k)]
        total = np.zeros(self._documents, dtype=np.float32)
        for stem in stems:
            column = self._column(stem)
            if column.numbers is None:
                total += column.scores
            else:
                total[column.numbers] += column.scores
        return _highest(total, k)

    def document(self, number: int) -> Any:
        """Return what is stored of a document."""
        return self._searcher.doc(self._tantivy.DocAddress(0, number))

    def _column(self, stem: str) -> _Column:
        if (known := self._columns.get(stem)) is not None:
            return known
        having = self._searcher.doc_freq(WORDS, stem)
        hits = self._hits(self._query(stem), having) if having else ()
        numbers = np.fromiter((address.doc for _, address in hits), dtype=np.int64, count=len(hits))
        scores = np.fromiter((score for score, _ in hits), dtype=np.float32, count=len(hits))
        column = _Column(scores, numbers)
        if having * _DENSE >= self._documents:
            column = _Column(np.zeros(self._documents, dtype=np.float32), None)
            column.scores[numbers] = scores
        self._keep(stem, column)
        return column

    def _keep(self, stem: str, column: _Column) -> None:
        if self._bytes + column.size > _MOST_BYTES:
            self._columns, self._bytes = {}, 0
        self._columns[stem] = column
        self._bytes += column.size

    def _query(self, stem: str) -> Any:
        return self._tantivy.Query.term_query(self._schema, WORDS, stem, index_option="freq")

    def _hits(self, query: Any, limit: int) -> Sequence[tuple[float, Any]]:
        hits: Sequence[tuple[float, Any]] = self._searcher.search(query, limit, count=False).hits
        return hits


def _highest(total: npt.NDArray[np.float32], k: int) -> list[Scored]:
    """Return the ``k`` documents with the highest scores above 0; of equal scores the first. ``total`` is used up."""
    if k > _FEW:
        places = np.argsort(-total, kind="stable")[:k]
        return [Scored(float(total[place]), int(place)) for place in places if total[place] > 0]
    found: list[Scored] = []
    while len(found) < min(k, len(total)):
        place = int(total.argmax())
        score = float(total[place])
        if score <= 0:
            break
        found.append(Scored(score, place))
        total[place] = 0
    return found
