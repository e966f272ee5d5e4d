"""Search by words: BM25.

An index is a folder: a manifest, and one or more *parts*. The build moves the folder to its place when it is whole, so a build
that was killed leaves nothing that looks like an index. What a model writes is taken as words, never as query syntax.

tantivy's analyzer makes the stems, and the scores are those of tantivy to the bit. The postings are arrays of our own, for two
reasons. tantivy stems every word of every document; here each different word is stemmed once, and a build takes 0.5 to 0.6 of
the CPU time. And to ask tantivy for the documents of a stem costs more than to slice an array.

One corpus has one ranking. The documents of a part stand in the order of the corpus, and equal scores are ordered by it. A part
ends after ``_PART_CHARACTERS``, whatever the machine. Each part counts its own words: a corpus of several parts is scored part
by part.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable import Inside
from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.foundation.encoding import clean_text
from palestra.foundation.installation import how_to_install
from palestra.tools.search.building import built_beside
from palestra.tools.search.documents import Document, Hit
from palestra.tools.search.parts import IndexPart
from palestra.tools.search.writing import PartWriter

__all__ = ["Bm25Index", "bm25_format", "build_index"]

_VERSION = 3
_WORD = re.compile(r"\w+")
_QUERY_WORDS = 64
"""Words of a query that count: enough for a question, too few for an attack."""
_BATCH = 1000
"""Documents that are cut into words at once, between two reports of progress."""
_BATCH_CHARACTERS = 10_000_000
"""The text of a batch. Fewer documents are a batch if they are long."""
_PART_CHARACTERS = 500_000_000
"""The text of a part. To write it takes about five bytes of memory per character."""
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be but by for from had has have he her his i if in into is it its not of on or she so such "
        "that the their then there these they this to was were what when where which who whom whose why will with you"
    )
)
"""Words that stand in every document: they cost the most and tell the least."""


def bm25_format() -> str:
    """Return the format of the indexes that this process builds and reads, for the name of a folder."""
    return f"bm25-{_VERSION}"


class _BM25Manifest(msgspec.Struct):
    documents: int
    parts: int = 0
    sha256: str = ""
    version: int = _VERSION


def build_index(documents: Iterable[Document], folder: Path | str, *, progress: Callable[[int], None] | None = None) -> int:
    """Index ``documents`` into ``folder``, which must not exist.

    Returns how many documents there were. ``progress`` is called with the count so far.
    """
    analyze = _stemmer().analyze
    with built_beside(Path(folder)) as building:
        counted = _Counted(documents, progress)
        parts = 0
        while counted.more():
            _write_part(building / _part(parts), counted, analyze)
            parts += 1
        manifest = _BM25Manifest(counted.count, parts, counted.digest.hexdigest())
        (building / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return counted.count


class _Counted:
    """The documents of a corpus, handed out part by part, counted and hashed on the way."""

    def __init__(self, documents: Iterable[Document], progress: Callable[[int], None] | None) -> None:
        self._remaining = iter(documents)
        self._next = next(self._remaining, None)
        self._progress = progress
        self.count = 0
        self.digest = hashlib.sha256()

    def more(self) -> bool:
        return self._next is not None

    def part(self) -> Iterator[list[Document]]:
        """Yield the documents of the next part, in batches."""
        left = _PART_CHARACTERS
        while self._next is not None and left > 0:
            batch: list[Document] = []
            enough = max(0, left - _BATCH_CHARACTERS)
            while self._next is not None and len(batch) < _BATCH and left > enough:
                document, self._next = self._next, next(self._remaining, None)
                left -= len(document.title) + len(document.text)
                batch.append(document)
            self.count += len(batch)
            yield batch
            if self._progress is not None and (len(batch) == _BATCH or self._next is None):
                self._progress(self.count)

    def fields(self, batch: Sequence[Document]) -> list[bytes]:
        """Return the fields of the documents as bytes, in a row, and hash them."""
        fields = [field.encode(errors="replace") for document in batch for field in document]
        self.digest.update(b"".join([part for data in fields for part in (len(data).to_bytes(8, "big"), data)]))
        return fields


def _write_part(folder: Path, counted: _Counted, analyze: Callable[[str], Sequence[str]]) -> None:
    writer = PartWriter(folder, analyze)
    for batch in counted.part():
        writer.add(batch, counted.fields(batch))
    writer.finish()


class Bm25Index:
    """An index that was built, open for reading."""

    def __init__(self, folder: Path | str) -> None:
        self._stemmer = _stemmer()
        inside = Inside(Path(folder))
        try:
            manifest = msgspec.json.decode((inside / "manifest.json").read_bytes(), type=_BM25Manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"{inside} is not an index. Build one: palestra index build corpus.jsonl {inside}") from None
        except msgspec.MsgspecError as error:
            raise SchemaError(f"the manifest of {inside} cannot be read: {error}") from None
        if manifest.version != _VERSION:
            raise SchemaError(f"{inside} was built by another version of palestra: build it again")
        self.documents = manifest.documents
        """How many there are."""
        self.source = f"sha256:{manifest.sha256}"
        """The content hash of the corpus, in its order."""
        try:
            self._parts = [IndexPart(inside / _part(number)) for number in range(manifest.parts)]
        except UsageError:
            raise
        except (OSError, EOFError, ValueError, IndexError) as error:
            raise SchemaError(f"{inside} cannot be read: {error}. Build it again") from None

    def search(self, query: str, k: int) -> list[Hit]:
        """The best ``k`` documents, best first; equal scores in the order of the corpus."""
        words = _WORD.findall(query[:2000])
        telling = [word for word in words if word.lower() not in _COMMON] or words
        once = {word.lower(): word for word in reversed(telling[:_QUERY_WORDS])}  # a word counts once
        stems = self._stemmer.analyze(clean_text(" ".join(reversed(once.values()))))
        if not stems or k < 1:
            return []
        scored = [(hit, part) for part in self._parts for hit in part.best(stems, k)]
        scored.sort(key=lambda pair: -pair[0].score)  # stable: parts, and the documents of a part, stand in the corpus's order
        return [Hit(part.document(hit.number), hit.score) for hit, part in scored[:k]]

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` for each query. A search takes less than a thread would."""
        return [self.search(query, k) for query in queries]


def _part(number: int) -> str:
    return f"part-{number:04}"


def _stemmer() -> Any:
    """Return tantivy's analyzer that makes the stems of documents and queries; it is that of tantivy's ``en_stem``."""
    try:
        import tantivy
    except ImportError:
        raise MissingExtra(f"search needs tantivy: {how_to_install('search')}") from None
    simple, filters = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()), tantivy.Filter
    short = simple.filter(filters.remove_long(40)).filter(filters.lowercase())
    return short.filter(filters.stemmer("english")).build()
