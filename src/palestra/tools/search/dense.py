"""Search by meaning: vectors on faiss, and the union of both kinds by reciprocal rank.

An ``Embedder`` turns texts into vectors; ``SentenceEmbedder`` does it with a sentence-transformers model. The vectors lie
beside the documents in one folder, which the build moves to its place when it is whole.

faiss sums a product in another order when it answers several queries at once, or on several threads, and it leaves ties to
chance. So faiss only proposes candidates: their scores are computed again one by one, and equal scores are ordered by the
documents' order in the corpus.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.durable import Inside
from palestra.errors import MissingExtra, SchemaError, UsageError
from palestra.foundation.installation import how_to_install
from palestra.tools.search.building import built_beside
from palestra.tools.search.documents import Document, Hit, Retriever

__all__ = ["DenseIndex", "Embedder", "Hybrid", "SentenceEmbedder", "build_dense_index", "dense_format"]

_VERSION = 1
_BATCH = 256
_RANK_OFFSET = 60
"""The constant of reciprocal rank fusion: the larger it is, the less the first places differ."""
_NEAR = 1e-5
"""Scores that differ by less may be one score, summed in two orders."""


class _DenseManifest(msgspec.Struct):
    documents: int
    sha256: str


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


def dense_format() -> str:
    """Return the format of the indexes that this process builds and reads, for the name of a folder."""
    return f"dense-{_VERSION}"


def build_dense_index(
    documents: Iterable[Document],
    folder: Path | str,
    embedder: Embedder,
    *,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Embed ``documents`` into ``folder``, which must not exist; how many there were."""
    faiss = _faiss()
    with built_beside(Path(folder)) as building:
        index, kept = _embedded(faiss, documents, embedder, progress)
        faiss.write_index(index, str(building / "vectors.faiss"))
        stored = msgspec.json.encode(kept)
        (building / "documents.json").write_bytes(stored)
        digest = hashlib.sha256(stored + faiss.serialize_index(index).tobytes()).hexdigest()
        (building / "manifest.json").write_bytes(msgspec.json.encode(_DenseManifest(len(kept), digest)))
    return len(kept)


def _embedded(
    faiss: Any, documents: Iterable[Document], embedder: Embedder, progress: Callable[[int], None] | None
) -> tuple[Any, list[Document]]:
    """The faiss index of ``documents``, and the documents."""
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
    return index, kept


class DenseIndex:
    """An index of vectors, open for reading."""

    def __init__(self, folder: Path | str, embedder: Embedder) -> None:
        inside = Inside(Path(folder))
        if not (inside / "vectors.faiss").exists():
            raise UsageError(f"{inside} is not a dense index. Build one with build_dense_index")
        try:
            manifest = msgspec.json.decode((inside / "manifest.json").read_bytes(), type=_DenseManifest)
            self._documents = msgspec.json.decode((inside / "documents.json").read_bytes(), type=list[Document])
        except FileNotFoundError as error:
            missing = Path(error.filename).name
            raise SchemaError(f"{inside} has no {missing}: another version of palestra built it. Build it again") from None
        except msgspec.MsgspecError as error:
            raise SchemaError(f"{inside} cannot be read: {error}. Build it again") from None
        try:
            self._index = _faiss().read_index(str((inside / "vectors.faiss").checked_file()))
        except RuntimeError as error:
            raise SchemaError(f"{inside} cannot be read: {str(error).splitlines()[0]}. Build it again") from None
        if self._index.ntotal != len(self._documents):
            raise SchemaError(f"{inside} has {self._index.ntotal} vectors for {len(self._documents)} documents. Build it again")
        self._embedder = embedder
        self.source = f"sha256:{manifest.sha256}"
        """The content hash of documents and vectors."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` for each query; equal scores in the order of the corpus."""
        k = min(k, len(self._documents))
        if not queries or k < 1:
            return [[] for _ in queries]
        return [self._best(vector, k) for vector in _unit(self._embedder(queries))]

    def _best(self, vector: npt.NDArray[np.float32], k: int) -> list[Hit]:
        rows = self._candidates(vector, k)
        vectors = self._index.reconstruct_batch(rows).astype(np.float64)
        scores = [float(np.dot(candidate, vector)) for candidate in vectors]
        ranked = sorted(zip(scores, rows.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [Hit(self._documents[row], score) for score, row in ranked[:k]]

    def _candidates(self, vector: npt.NDArray[np.float32], k: int) -> npt.NDArray[np.int64]:
        """The rows of the best ``k`` and of all that come near the last of them."""
        count = k
        while True:
            count = min(2 * count + 8, len(self._documents))
            scores, rows = self._index.search(vector[None], count)
            if count == len(self._documents) or scores[0, -1] < scores[0, k - 1] - _NEAR:
                numbers: npt.NDArray[np.int64] = rows[0]
                return numbers

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The same in a thread, because embedding takes its time."""
        return await asyncio.to_thread(self.search, queries, k)


class Hybrid:
    """Several retrievers as one: a document's score is the sum of 1 / (60 + its rank) over those that found it."""

    def __init__(self, *retrievers: Retriever, depth: int = 50) -> None:
        self._retrievers = retrievers
        self._depth = depth

    @property
    def source(self) -> str:
        """The content hashes of all of them."""
        return "+".join(retriever.source for retriever in self._retrievers)

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        depth = max(k, self._depth)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_retrieve(retriever, queries, depth)) for retriever in self._retrievers]
        rankings = [task.result() for task in tasks]
        return [_fused([lists[at] for lists in rankings])[:k] for at in range(len(queries))]


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
        raise MissingExtra(f"dense search needs faiss: {how_to_install('search')}") from None
    return faiss
