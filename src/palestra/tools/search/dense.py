"""Search by meaning: vectors on faiss, and the union of both kinds by reciprocal rank.

An ``Embedder`` turns texts into vectors; ``SentenceEmbedder`` does it with a sentence-transformers model. The vectors lie
beside the documents in one folder.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import MissingExtra, UsageError
from palestra.tools.search.documents import Document, Hit, Retriever

__all__ = ["DenseIndex", "Embedder", "Hybrid", "SentenceEmbedder", "build_dense_index"]

_BATCH = 256
_RANK_OFFSET = 60
"""Of reciprocal rank fusion: how little the very first places differ."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    def __call__(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row a text; their lengths do not matter."""
        ...


class SentenceEmbedder:
    """A sentence-transformers model, by name or folder."""

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtra("dense search needs an embedder: pip install sentence-transformers") from None
        self._model = SentenceTransformer(model, device="cpu")

    def __call__(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.asarray(self._model.encode(list(texts), show_progress_bar=False), dtype=np.float32)


def build_dense_index(
    documents: Iterable[Document],
    folder: Path | str,
    embedder: Embedder,
    *,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed ``documents`` into ``folder``, which must not exist; how many there were."""
    faiss = _faiss()
    place = Path(folder)
    if place.exists():
        raise UsageError(f"{place} exists already: name another folder, or remove it")
    index: Any = None
    kept: list[Document] = []
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, _BATCH)):
        vectors = _unit(embedder([f"{document.title}\n{document.text}" for document in batch]))
        if index is None:
            index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        kept += batch
        if progress is not None:
            progress(len(kept))
    if index is None:
        raise UsageError("there is nothing to index: the corpus is empty")
    place.mkdir(parents=True)
    faiss.write_index(index, str(place / "vectors.faiss"))
    (place / "documents.json").write_bytes(msgspec.json.encode(kept))
    return len(kept)


class DenseIndex:
    """An index of vectors, open for reading."""

    def __init__(self, folder: Path | str, embedder: Embedder) -> None:
        place = Path(folder)
        if not (place / "vectors.faiss").exists():
            raise UsageError(f"{place} is no dense index: build one with build_dense_index")
        self._index = _faiss().read_index(str(place / "vectors.faiss"))
        self._documents = msgspec.json.decode((place / "documents.json").read_bytes(), type=list[Document])
        self._embedder = embedder

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` for each query."""
        k = min(k, len(self._documents))
        if not queries or k < 1:
            return [[] for _ in queries]
        scores, rows = self._index.search(_unit(self._embedder(queries)), k)
        return [
            [Hit(self._documents[row], float(score)) for score, row in zip(*pair, strict=True)]
            for pair in zip(scores, rows, strict=True)
        ]

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The same in a thread, because embedding takes its time."""
        return await asyncio.to_thread(self.search, queries, k)


class Hybrid:
    """Several retrievers as one: a document's score is the sum of 1 / (60 + its rank) over those that found it."""

    def __init__(self, *retrievers: Retriever, depth: int = 50) -> None:
        self._retrievers = retrievers
        self._depth = depth

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        depth = max(k, self._depth)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_retrieve(retriever, queries, depth)) for retriever in self._retrievers]
        found = [task.result() for task in tasks]
        return [_fused([lists[at] for lists in found])[:k] for at in range(len(queries))]


async def _retrieve(retriever: Retriever, queries: Sequence[str], k: int) -> list[list[Hit]]:
    return await retriever.retrieve(queries, k)


def _fused(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    scores: dict[str, float] = {}
    documents: dict[str, Document] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            documents[hit.document.id] = hit.document
            scores[hit.document.id] = scores.get(hit.document.id, 0.0) + 1.0 / (_RANK_OFFSET + rank)
    # Ties by id, so that the order never depends on who answered first.
    return [Hit(documents[name], scores[name]) for name in sorted(scores, key=lambda name: (-scores[name], name))]


def _unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtra('dense search needs faiss: pip install "palestra[search]"') from None
    return faiss
