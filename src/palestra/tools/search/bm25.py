"""Search by words: BM25 on tantivy.

An index is a folder: a manifest, and one or more *parts*, each a tantivy index. The build moves the folder to its place when
it is whole, so a build that was killed leaves nothing that looks like an index. What a model writes is taken as words, never as
query syntax.

One corpus has one ranking. tantivy breaks ties by a document's place in its segment, and several indexing threads or segments
make that place a matter of luck. So one thread writes each part, a part is exactly one segment, and the documents of a part
stand in the order of the corpus. A part ends after ``_PART_CHARACTERS``, whatever the machine. Equal scores are ordered by the
documents' order in the corpus. Each part counts its own words: a corpus of several parts is scored part by part.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.encoding import clean_text
from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.tools.search.building import built_beside
from palestra.tools.search.documents import Document, Hit
from palestra.tools.search.parts import WORDS, Part

__all__ = ["Bm25Index", "bm25_format", "build_index"]

_VERSION = 2
_WORD = re.compile(r"\w+")
_QUERY_WORDS = 64
"""Words of a query that count: enough for a question, too few for an attack."""
_BATCH = 1000
"""Documents between two reports of progress."""
_PART_CHARACTERS = 500_000_000
"""The text of a part. Its index takes one to two bytes of memory per character, which must stay below the writer's limit."""
_WRITER_BYTES = 2_000_000_000
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be but by for from had has have he her his i if in into is it its not of on or she so such "
        "that the their then there these they this to was were what when where which who whom whose why will with you"
    )
)
"""Words that stand in every document: they cost the most and tell the least."""


def bm25_format() -> str:
    """Return the format of the indexes that this process builds and reads: ours and tantivy's, for the name of a folder."""
    tantivys = re.search(r"index_format v(\d+)", _tantivy().__version__)
    return f"bm25-{_VERSION}-{tantivys[1] if tantivys else 'unknown'}"


class _BM25Manifest(msgspec.Struct):
    documents: int
    parts: int = 0
    sha256: str = ""
    version: int = _VERSION


def build_index(documents: Iterable[Document], folder: Path | str, *, progress: Callable[[int], None] | None = None) -> int:
    """Index ``documents`` into ``folder``, which must not exist.

    Returns how many documents there were. ``progress`` is called with the count so far.
    """
    tantivy = _tantivy()
    with built_beside(Path(folder)) as building:
        counted = _Counted(documents, progress)
        parts = 0
        while counted.more():
            _write_part(tantivy, building / _part(parts), counted)
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

    def part(self) -> Iterator[tuple[Document, list[bytes]]]:
        """Yield the documents of the next part, each with its fields as bytes."""
        characters = 0
        while self._next is not None and characters < _PART_CHARACTERS:
            document, self._next = self._next, next(self._remaining, None)
            characters += len(document.title) + len(document.text)
            self.count += 1
            fields = [field.encode(errors="replace") for field in document]
            self.digest.update(b"".join([part for data in fields for part in (len(data).to_bytes(8, "big"), data)]))
            yield document, fields
            if self._progress is not None and (self.count % _BATCH == 0 or self._next is None):
                self._progress(self.count)


def _write_part(tantivy: Any, folder: Path, counted: _Counted) -> None:
    folder.mkdir()
    index = tantivy.Index(_schema(tantivy), path=str(folder))
    writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
    for document, fields in counted.part():
        stored = dict(zip(Document._fields, fields, strict=True))
        writer.add_document(tantivy.Document(**stored, words=clean_text(f"{document.title}\n{document.text}")))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    segments = index.searcher().num_segments
    if segments != 1:
        raise RuntimeError(f"part {folder.name} has {segments} segments instead of one: its ranking would not be reproducible")


class Bm25Index:
    """An index that was built, open for reading."""

    def __init__(self, folder: Path | str) -> None:
        tantivy = _tantivy()
        place = Path(folder)
        try:
            manifest = msgspec.json.decode((place / "manifest.json").read_bytes(), type=_BM25Manifest)
        except FileNotFoundError:
            raise UsageError(f"{place} is not an index. Build one: palestra index build corpus.jsonl {place}") from None
        except msgspec.MsgspecError as error:
            raise SchemaError(f"the manifest of {place} cannot be read: {error}") from None
        if manifest.version != _VERSION:
            raise SchemaError(f"{place} was built by another version of palestra: build it again")
        self.documents = manifest.documents
        """How many there are."""
        self.source = f"sha256:{manifest.sha256}"
        """The content hash of the corpus, in its order."""
        self._stemmer = _stemmer(tantivy)
        self._parts = [Part(tantivy, place / _part(number)) for number in range(manifest.parts)]

    def search(self, query: str, k: int) -> list[Hit]:
        """The best ``k`` documents, best first; equal scores in the order of the corpus."""
        words = _WORD.findall(query[:2000])
        telling = [word for word in words if word.lower() not in _COMMON] or words
        once = {word.lower(): word for word in reversed(telling[:_QUERY_WORDS])}  # a word counts once
        stems = self._stemmer.analyze(clean_text(" ".join(reversed(once.values()))))
        if not stems or k < 1:
            return []
        found = [(hit, part) for part in self._parts for hit in part.best(stems, k)]
        found.sort(key=lambda one: -one[0].score)  # stable: parts, and the documents of a part, stand in the corpus's order
        return [Hit(_stored(part.document(hit.number)), hit.score) for hit, part in found[:k]]

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` for each query. A search takes less than a thread would."""
        return [self.search(query, k) for query in queries]


def _part(number: int) -> str:
    return f"part-{number:04}"


def _stored(document: Any) -> Document:
    return Document(*(bytes(document.get_first(name) or b"").decode() for name in Document._fields))


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    for name in Document._fields:
        builder.add_bytes_field(name, stored=True)  # kept, not searched
    builder.add_text_field(WORDS, stored=False, tokenizer_name="en_stem", index_option="freq")
    return builder.build()


def _stemmer(tantivy: Any) -> Any:
    """Return what makes the stems of a query as ``en_stem`` makes those of the documents."""
    simple, filters = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()), tantivy.Filter
    short = simple.filter(filters.remove_long(40)).filter(filters.lowercase())
    return short.filter(filters.stemmer("english")).build()


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError:
        raise MissingExtra('search needs tantivy: pip install "palestra[search]"') from None
    return tantivy
