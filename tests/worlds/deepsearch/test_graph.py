"""The worlds as graphs: every fact can be read, every question has one answer."""

import pytest
from tests.worlds.deepsearch.episodes import SMALL

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.worlds.deepsearch.graph import Question, fact_in
from palestra.worlds.deepsearch.index import World, invented
from palestra.worlds.deepsearch.invented import LEAST_DOCUMENTS, invented_world
from palestra.worlds.deepsearch.phrases import RELATIONS


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


@pytest.mark.parametrize("documents", [0, -1, LEAST_DOCUMENTS - 1, 10**9])
def test_a_world_has_a_size(documents: int) -> None:
    with pytest.raises(UsageError, match="documents must be from"):
        invented_world(0, documents)
