"""The worlds as graphs: every fact can be read, every question has one answer."""

from collections import Counter
from itertools import product

import pytest
from tests.envs.deepsearch.episodes import SMALL

from palestra.envs.deepsearch.graph import Question, Relation, fact_in
from palestra.envs.deepsearch.index import World, invented, search_tool
from palestra.envs.deepsearch.invented import LEAST_DOCUMENTS, invented_world
from palestra.envs.deepsearch.phrases import RELATIONS
from palestra.errors import UsageError
from palestra.seeding import derive
from palestra.tools.search.bm25 import Bm25Index


@pytest.fixture(scope="module")
def world() -> World:
    return invented(0, SMALL)


def followed(world: World, question: Question) -> list[str]:
    """All answers that the documents give: every document is read at every hop."""
    texts = {document.title: document.text for document in world.documents}
    names = [question.start.name]
    if question.start.relation is not None:
        key, value = question.start.relation, question.start.value
        names = [name for name, text in texts.items() if fact_in(text, name, key) == value]
    for relation in question.relations:
        names = [found for name in names if (found := fact_in(texts[name], name, relation)) is not None]
    return names


def test_every_fact_stands_in_its_document_and_can_be_read(world: World) -> None:
    graph = world.graph
    assert len(set(graph.names)) == len(graph.names) == len(world.documents)
    for relation, facts in graph.facts.items():
        for entity, value in facts.items():
            assert fact_in(world.documents[entity].text, graph.names[entity], relation) == graph.shown(value)


def test_a_wrong_lead_is_not_read_as_a_fact() -> None:
    (birthplace,) = (relation for relation in RELATIONS if relation.name == "birthplace")
    text = (
        "Ana Bek is a person. An old almanac wrongly names Upper Tor as the birthplace of Ana Bek. Ana Bek was born in Old Mir."
    )
    assert fact_in(text, "Ana Bek", birthplace) == "Old Mir"
    assert fact_in(text.partition("Ana Bek was")[0], "Ana Bek", birthplace) is None


@pytest.mark.parametrize("hops", [2, 3, 4, 6])
def test_the_documents_give_exactly_one_answer(world: World, hops: int) -> None:
    for seed in range(20):
        question = world.graph.ask(derive(seed), hops)
        assert followed(world, question) == [question.answers[0]]
        assert len(set(question.path)) == len(question.relations) == hops
        assert question.answers[0] not in question.text


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.name)
def test_phrases_can_be_nested(relation: Relation) -> None:
    assert all(phrase.endswith("{x}") for phrase in relation.asked)
    assert all(told.endswith(".") and told.count("{o}") == 1 and "{s}" in told for told in relation.told)
    assert bool(relation.asked) != bool(relation.ending)


def test_a_seed_is_a_world_and_another_seed_another_one() -> None:
    first, again, other = (invented_world(seed, LEAST_DOCUMENTS) for seed in (1, 1, 2))
    assert first.documents() == again.documents()
    assert not set(first.names) & set(other.names)


@pytest.mark.parametrize("documents", [0, -1, LEAST_DOCUMENTS - 1, 10**9])
def test_a_world_has_a_size(documents: int) -> None:
    with pytest.raises(UsageError, match="documents must be from"):
        invented_world(0, documents)


def test_no_answer_is_common() -> None:
    types: dict[str, Counter[str]] = {}
    for seed in range(3000):
        question = invented(0, 10_000).graph.ask(derive(seed), 2)
        types.setdefault(question.type, Counter())[question.answers[0]] += 1
    assert len(types) == len(RELATIONS)
    assert all(max(counts.values()) / counts.total() <= 0.05 for counts in types.values())


@pytest.mark.slow
def test_the_question_does_not_find_the_document_with_the_answer() -> None:
    world = invented(0, 10_000)
    index = search_tool(world, "bm25?k=5")._retriever
    assert isinstance(index, Bm25Index)
    found = 0
    for seed, hops in product(range(50), (2, 3, 4, 6)):
        question = world.graph.ask(derive(seed), hops)
        found += str(question.path[-1]) in [hit.document.id for hit in index.search(question.text, 5)]
    assert found <= 4  # 2 % of 200
