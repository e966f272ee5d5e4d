"""The real world: as the packages have it."""

import os

import pytest
from tests.worlds.deepsearch.episodes import played

from palestra.errors import MissingData
from palestra.worlds.deepsearch import DeepSearch
from palestra.worlds.deepsearch.graph import fact_in
from palestra.worlds.deepsearch.index import real
from palestra.worlds.deepsearch.wheels import FACTS

WORLD = "939a51bcf477f0f095bd5fa4edc6acf5f320448d0ed86faab6832311ec5c5f28"
"""The content hash of the documents. It changes with a version of a package, and then every task changes."""


@pytest.fixture(autouse=True, scope="module")
def facts_package() -> None:
    try:
        FACTS.folder()
    except MissingData as missing:
        if os.environ.get("PALESTRA_TEST_EXTRAS") == "all":
            raise
        pytest.skip(str(missing))


@pytest.mark.slow
async def test_the_oracle_finds_real_facts_by_searching() -> None:
    assert real().sha256 == WORLD
    graph = real().graph
    assert len(set(graph.names)) == len(graph.names)
    for relation, facts in graph.facts.items():
        for entity, value in list(facts.items())[:300]:
            assert fact_in(real().documents[entity].text, graph.names[entity], relation) == graph.shown(value)
    for hops in (2, 3, 4):
        env = DeepSearch("facts", hops)
        for seed in range(40):
            steps = await played(env, seed)
            assert steps[-1].reward == 1.0
            assert env.question.start.relation is not None  # described by a figure, never named
    france = graph.names.index("France")
    (capital,) = (facts[france] for relation, facts in graph.facts.items() if relation.name == "capital")
    assert graph.shown(capital) == "Paris"
