"""Search by words: BM25 on tantivy.

An index is a folder: tantivy's files and a manifest. It is built beside its place and moved there when it is whole, so a build
that was killed leaves nothing that looks like an index. What a model writes is taken as words, never as query syntax.
"""

import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.encoding import clean_text
from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.tools.search.documents import Document, Hit

__all__ = ["Bm25Index", "build_index"]

_VERSION = 1
_WORD = re.compile(r"\w+")
_QUERY_WORDS = 64
"""Words of a query that count: enough for a question, too few for an attack."""
_BATCH = 1000
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be but by for from had has have he her his i if in into is it its not of on or she so such "
        "that the their then there these they this to was were what when where which who whom whose why will with you"
    )
)
"""Words that stand in every document: they cost the most and tell the least."""


class _Manifest(msgspec.Struct):
    documents: int
    version: int = _VERSION


def build_index(documents: Iterable[Document], folder: Path | str, *, progress: Callable[[int], None] | None = None) -> int:
    """Index ``documents`` into ``folder``, which must not exist; how many there were. ``progress`` is told the count so far."""
    tantivy = _tantivy()
    place = Path(folder)
    if place.exists():
        raise UsageError(f"{place} exists already: name another folder, or remove it")
    place.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        index = tantivy.Index(_schema(tantivy), path=str(building))
        writer = index.writer(heap_size=512_000_000, num_threads=2)  # few threads and much room: few segments to search
        count = 0
        remaining = iter(documents)
        while batch := list(itertools.islice(remaining, _BATCH)):
            for document in batch:
                stored = {name: value.encode(errors="replace") for name, value in document._asdict().items()}
                words = clean_text(f"{document.title}\n{document.text}")
                writer.add_document(tantivy.Document(**stored, words=words))
            count += len(batch)
            if progress is not None:
                progress(count)
        writer.commit()
        writer.wait_merging_threads()
        (building / "manifest.json").write_bytes(msgspec.json.encode(_Manifest(count)))
        building.chmod(0o755)
        building.rename(place)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return count


class Bm25Index:
    """An index that was built, open for reading."""

    def __init__(self, folder: Path | str) -> None:
        tantivy = _tantivy()
        place = Path(folder)
        try:
            manifest = msgspec.json.decode((place / "manifest.json").read_bytes(), type=_Manifest)
        except FileNotFoundError:
            raise UsageError(f"{place} is no index: palestra index build corpus.jsonl {place}") from None
        except msgspec.MsgspecError as error:
            raise SchemaError(f"the manifest of {place} cannot be read: {error}") from None
        if manifest.version != _VERSION:
            raise SchemaError(f"{place} was built by another version of palestra: build it again")
        self.documents = manifest.documents
        """How many there are."""
        self._index = tantivy.Index.open(str(place))
        self._searcher = self._index.searcher()

    def search(self, query: str, k: int) -> list[Hit]:
        """The best ``k`` documents, best first."""
        words = _WORD.findall(query[:2000].lower())
        telling = [word for word in words if word not in _COMMON] or words
        if not telling or k < 1:
            return []
        parsed, _ = self._index.parse_query_lenient(" ".join(telling[:_QUERY_WORDS]), ["words"])
        found = self._searcher.search(parsed, k, count=False).hits
        return [Hit(_stored(self._searcher.doc(address)), float(score)) for score, address in found]

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` for each query. A search takes less than a thread would."""
        return [self.search(query, k) for query in queries]


def _stored(document: Any) -> Document:
    return Document(*(bytes(document.get_first(name) or b"").decode() for name in Document._fields))


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    for name in Document._fields:
        builder.add_bytes_field(name, stored=True)  # kept, not searched
    builder.add_text_field("words", stored=False, tokenizer_name="en_stem", index_option="freq")
    return builder.build()


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError:
        raise MissingExtra('search needs tantivy: pip install "palestra[search]"') from None
    return tantivy
