"""The worlds of this process, and what searches them.

A world and its index are made once per process and shared by all episodes. The index lies in the user's Palestra folder under
the content hash of its documents and the format of the index, so the next process opens it instead of building it. Several
processes may build the same index at once: the first to finish wins.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from palestra.errors import UsageError
from palestra.foundation.home import home_folder
from palestra.foundation.references import is_reference, resolve
from palestra.registry import parse_options
from palestra.tools.search import Document, Retriever, SearchTool
from palestra.tools.search.bm25 import Bm25Index, bm25_format, build_index
from palestra.tools.search.dense import DenseIndex, Embedder, Hybrid, SentenceEmbedder, build_dense_index, dense_format
from palestra.worlds.deepsearch.graph import Graph

__all__ = ["METHODS", "World", "invented", "real", "search_tool"]

METHODS = ("bm25", "dense", "hybrid")
_PASSAGES = 3
"""As many as AgentGym-RL shows."""


class World(NamedTuple):
    """A graph, its documents, and their content hash."""

    graph: Graph
    documents: list[Document]
    sha256: str


def _world(graph: Graph) -> World:
    documents = graph.documents()
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.title}\n{document.text}\n".encode())
    return World(graph, documents, digest.hexdigest())


@cache
def invented(seed: int, documents: int) -> World:
    """Return the invented world of a seed."""
    from palestra.worlds.deepsearch.invented import invented_world

    return _world(invented_world(seed, documents))


@cache
def real() -> World:
    """Return the real world, as far as the installed packages know it."""
    from palestra.worlds.deepsearch.facts import real_world

    return _world(real_world())


class _Held:
    """A world as a key of a cache: two are equal if their documents are."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.world.sha256 == self.world.sha256

    def __hash__(self) -> int:
        return hash(self.world.sha256)


def search_tool(world: World, search: str = "bm25") -> SearchTool:
    """Return the search tool over ``world``: one for all episodes of this process.

    Args:
        world: The world.
        search: ``bm25`` (words), ``dense?embedder=NAME`` (meaning) or ``hybrid?embedder=NAME`` (both). ``NAME`` is
            ``module:name`` of a function from texts to vectors, or the name or folder of a sentence-transformers model. The
            option ``k`` is how many passages a search returns.
    """
    method, options = parse_options(search)
    embedder, k = str(options.pop("embedder", "")), options.pop("k", _PASSAGES)
    if method not in METHODS or options:
        raise UsageError(f'"{search}" is not a way to search: write {", ".join(METHODS)}, with the options embedder and k')
    if method != "bm25" and not embedder:
        raise UsageError(f"{method} search needs an embedder: write {method}?embedder=MODEL or {method}?embedder=module:name")
    if not isinstance(k, int) or k < 1:
        raise UsageError(f"a search returns at least 1 passage, got k={k}")
    return _search_tool(_Held(world), method, embedder, k)


@cache
def _search_tool(held: _Held, method: str, embedder: str, k: int) -> SearchTool:
    if method == "bm25":
        return SearchTool(_words(held), k=k)
    dense = _meaning(held, embedder)
    return SearchTool(dense if method == "dense" else Hybrid(_words(held), dense), k=k)


@cache
def _words(held: _Held) -> Retriever:
    world = held.world
    return Bm25Index(_built(f"{world.sha256}-{bm25_format()}", lambda place: build_index(world.documents, place)))


@cache
def _meaning(held: _Held, name: str) -> Retriever:
    embedder: Embedder = resolve(name) if is_reference(name) else SentenceEmbedder(name)
    mark = hashlib.sha256(name.encode()).hexdigest()[:16]
    place = _built(
        f"{held.world.sha256}-{mark}-{dense_format()}", lambda place: build_dense_index(held.world.documents, place, embedder)
    )
    return DenseIndex(place, embedder)


def _built(name: str, build: Callable[[Path], int]) -> Path:
    """Return the folder of an index, and build it if there is none."""
    place = home_folder("search") / name
    if not place.exists():
        try:
            build(place)
        except UsageError:
            if not place.exists():
                raise
    return place
