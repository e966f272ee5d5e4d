"""A corpus in which many documents tie, and its ranking: shared by a test and by ``benchmarks/tools.py``."""

import random
from collections.abc import Sequence
from pathlib import Path

from palestra.tools.search import Document
from palestra.tools.search.bm25 import Bm25Index, build_index

Ranking = list[list[tuple[str, float]]]
"""For each query the ids and scores of its best documents."""

_ZONES = [f"{area}/{city}" for area in ("Europe", "Asia", "America", "Africa") for city in ("North", "South", "East", "West")]


def corpus(count: int) -> list[Document]:
    """Towns, described in the same words: those of one country and zone differ in name only."""
    chance = random.Random(0)
    syllables = ["ka", "lo", "mi", "ren", "tas", "vo", "bel", "dor", "ist", "um", "fa", "gri"]
    documents = []
    for number in range(count):
        name = "".join(chance.choices(syllables, k=3)).title()
        country, zone = f"country{chance.randrange(40)}", chance.choice(_ZONES)
        text = f"{name} is a town. It lies in {country}. It has {chance.randrange(1, 90)}00 people. Its time zone is {zone}."
        documents.append(Document(f"{number}", name, text))
    return documents


def queries(count: int) -> list[str]:
    """Half describe many towns alike, half are names of towns."""
    chance = random.Random(1)
    named = corpus(count)
    described = [f"town in country{chance.randrange(40)} time zone {chance.choice(_ZONES)}" for _ in range(count // 2)]
    return described + [document.title for document in named[: count - len(described)]]


def index_and_rank(documents: Sequence[Document], asked: Sequence[str], folder: Path) -> Ranking:
    """Index ``documents`` into ``folder`` and ask for the top 10 of every query."""
    build_index(documents, folder)
    index = Bm25Index(folder)
    return [[(hit.document.id, hit.score) for hit in index.search(query, 10)] for query in asked]
