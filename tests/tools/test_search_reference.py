"""The BM25 index against tantivy's own: the same documents and the same scores, to the bit."""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palestra.foundation.encoding import clean_text
from palestra.foundation.seeding import derive
from palestra.tools.search import Document, parts
from palestra.tools.search import bm25 as bm25_module
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.worlds.deepsearch.index import invented

tantivy: Any = pytest.importorskip("tantivy", reason="tantivy is not installed")

Found = list[tuple[Document, float]]


class Reference:
    """The same corpus in tantivy, which stems every word itself."""

    def __init__(self, documents: Sequence[Document]) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("words", stored=False, tokenizer_name="en_stem", index_option="freq")
        self.documents = documents
        self.schema = builder.build()
        index = tantivy.Index(self.schema)
        writer = index.writer(heap_size=200_000_000, num_threads=1)
        for document in documents:
            writer.add_document(tantivy.Document(words=clean_text(f"{document.title}\n{document.text}")))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self.searcher = index.searcher()
        assert self.searcher.num_segments == 1

    def search(self, stems: Sequence[str], k: int) -> Found:
        """The best documents by the sum of the scores that tantivy gives for each stem."""
        total = np.zeros(len(self.documents), dtype=np.float32)
        for stem in stems:
            query = tantivy.Query.term_query(self.schema, "words", stem, index_option="freq")
            for score, address in self.searcher.search(query, len(self.documents), count=False).hits:
                total[address.doc] += np.float32(score)
        best = np.argsort(-total, kind="stable")[:k]
        return [(self.documents[place], float(total[place])) for place in best if total[place] > 0]


def ours(documents: Sequence[Document], queries: Sequence[str], k: int) -> list[Found]:
    with tempfile.TemporaryDirectory() as folder:
        build_index(documents, Path(folder) / "index")
        index = Bm25Index(Path(folder) / "index")
        return [[(hit.document, hit.score) for hit in index.search(query, k)] for query in queries]


def stems_of(query: str) -> list[str]:
    """The stems of a query whose words differ and are not common ones."""
    stems: list[str] = bm25_module._stemmer().analyze(" ".join(re.findall(r"\w+", query)))
    return stems


WORDS = "river Rivers running runs Straße don't don’t x_y naïve ΣΟΦΟΣ मानक 東京 ½ — 7 " + "a" * 39
PIECES = WORDS.split()
TEXT = st.lists(st.sampled_from([*PIECES, "b" * 40, "İ", "", "🙂", "a\u0301b", "\x00", "\xff"]), max_size=60).map(" ".join)


@settings(deadline=None, max_examples=60)
@given(texts=st.lists(st.one_of(TEXT, st.text(max_size=30)), min_size=1, max_size=12), k=st.integers(1, 12))
@example(texts=[""], k=1)
@example(texts=["\udcff river", "\ud83d\ude00river"], k=2)
def test_documents_and_scores_are_those_of_tantivy(texts: list[str], k: int) -> None:
    documents = [Document(f"{number}", text[:5], text) for number, text in enumerate(texts)]
    reference = Reference(documents)
    stored = [Document(*(field.encode(errors="replace").decode() for field in document)) for document in documents]
    found = ours(documents, PIECES, k)
    for query, hits in zip(PIECES, found, strict=True):
        expected = [(stored[int(document.id)], score) for document, score in reference.search(stems_of(query), k)]
        assert hits == expected


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [0, parts._CANDIDATES, 10**9])
def test_the_invented_world_is_ranked_as_by_tantivy(monkeypatch: pytest.MonkeyPatch, candidates: int) -> None:
    monkeypatch.setattr(parts, "_CANDIDATES", candidates)  # 0: the documents with a rare stem are always scored first
    world = invented(1, 3000)
    reference, draw = Reference(world.documents), derive(0, "queries")
    queries = [world.graph.ask(draw, 2).text for _ in range(100)] + [document.title for document in world.documents[:100]]
    telling = [" ".join(dict.fromkeys(re.findall(r"\w+", query.lower()))) for query in queries]
    expected = []
    for query in telling:
        words = [word for word in query.split() if word not in bm25_module._COMMON]
        expected.append(reference.search(stems_of(" ".join(words)), 5))
    assert ours(world.documents, telling, 5) == expected
