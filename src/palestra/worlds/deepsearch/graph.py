"""A world as a graph: entities, single-valued relations, a document per entity, and questions that follow relations.

A question names its first entity, or describes it by a value that no other entity has. Each further hop follows a relation with
exactly one object, and every entity has a name of its own. So a question has exactly one answer, by construction. A hop is a
document that has to be read: a question of two hops needs two documents.

A question is drawn from its end: first the relation that is asked for, then the entity that has it, evenly, and then a way
back, which never takes the same relation twice in a row. Drawn from its beginning, ways would meet in the same few entities,
and guessing would pay.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from palestra.tools.search import Document

__all__ = ["Aside", "Graph", "Question", "Relation", "Start", "Value", "fact_in"]

Value = int | str
"""The number of an entity, or a text."""

_MOST_DRAWS = 1000
_MOST_WAYS = 50


@dataclass(frozen=True, eq=False)
class Relation:
    """Something that a document says about its entity, in one sentence."""

    name: str
    kind: str
    """The kind of the entities that have it."""
    told: tuple[str, ...]
    """Sentences of the document: ``{s}`` is the entity, ``{o}`` the object. Each ends with a period."""
    asked: tuple[str, ...] = ()
    """The object in a question, as a noun phrase about ``{x}``."""
    ending: str = ""
    """The question that asks for the object of ``{x}``, if it is not "What is" or "Who is" and the noun phrase."""
    target: str = ""
    """The kind of the objects; empty if they are texts."""
    key: str = ""
    """The entity in a question, described by the object ``{o}``, which no other entity has. Empty if that is not so."""
    answers: bool = True
    """Whether a question may ask for the object. False if a few objects are so common that a guess would often be right."""


class Aside(NamedTuple):
    """A sentence that answers nothing: it mentions an entity of the kind ``target`` as ``{z}``."""

    text: str
    target: str


class Start(NamedTuple):
    """How a question introduces its first entity: by name, or by the value of a relation."""

    name: str
    relation: Relation | None = None
    value: str = ""


class Question(NamedTuple):
    """A question, its answer, and the way that leads there."""

    text: str
    answers: tuple[str, ...]
    """The answer, and other names for it."""
    start: Start
    relations: tuple[Relation, ...]
    """One for each hop; the last gives the answer."""
    path: tuple[int, ...]
    """The entities whose documents have to be read, in order."""

    @property
    def type(self) -> str:
        """The question type: what is asked for."""
        return f"{self.relations[-1].kind} {self.relations[-1].name}"


@dataclass(frozen=True)
class Graph:
    """A world. Entities are numbered, in the order of their documents."""

    names: Sequence[str]
    kinds: Sequence[str]
    """The kind of each entity."""
    relations: Sequence[Relation]
    facts: Mapping[Relation, Mapping[int, Value]]
    """Relation → entity → object."""
    intros: Mapping[str, tuple[str, ...]]
    """Kind → first sentences of its documents, about ``{s}``."""
    asides: Mapping[str, tuple[Aside, ...]]
    """Kind → sentences that distract."""
    rng: np.random.Generator
    """Draws the wording of the documents."""
    named: bool = True
    """Whether a question may name its first entity. If not, it describes it."""
    aliases: Mapping[int, str] = field(default_factory=dict)
    """Entity → another name that is right as an answer."""

    @cached_property
    def members(self) -> Mapping[str, Sequence[int]]:
        """The entities of each kind."""
        members: dict[str, list[int]] = {}
        for entity, kind in enumerate(self.kinds):
            members.setdefault(kind, []).append(entity)
        return members

    @cached_property
    def relations_of(self) -> Mapping[str, tuple[Relation, ...]]:
        """The relations of each kind."""
        return {kind: tuple(one for one in self.relations if one.kind == kind) for kind in self.members}

    def shown(self, value: Value) -> str:
        """Return an object as text: an entity by its name."""
        return self.names[value] if isinstance(value, int) else value

    # ------------------------------------------------------------------------------------------------------ documents

    def documents(self) -> list[Document]:
        """Write a document for each entity."""
        draws = self.rng.integers(2**62, size=(len(self.names), 2)).tolist()
        others = {
            kind: self.rng.integers(len(of_kind), size=(len(self.names), 2)).tolist() for kind, of_kind in self.members.items()
        }
        return [self._document(entity, draws[entity], others) for entity in range(len(self.names))]

    def _document(self, entity: int, draws: Sequence[int], others: Mapping[str, Sequence[Sequence[int]]]) -> Document:
        name, kind = self.names[entity], self.kinds[entity]
        draw, order = draws
        sentences = []
        for relation in self.relations_of[kind]:
            value = self.facts[relation].get(entity)
            if value is not None:
                draw, pick = divmod(draw, len(relation.told))
                sentences.append(relation.told[pick].format(s=name, o=self.shown(value)))
        for place, other in enumerate(self._asides(kind, draw)):
            mentioned = self.members[other.target][others[other.target][entity][place]]
            if mentioned != entity:
                sentences.append(other.text.format(s=name, z=self.names[mentioned]))
        shuffled = []
        while sentences:
            order, pick = divmod(order, len(sentences))
            shuffled.append(sentences.pop(pick))
        first = self.intros[kind][order % len(self.intros[kind])].format(s=name)
        return Document(str(entity), name, " ".join([first, *shuffled]))

    def _asides(self, kind: str, draw: int) -> Sequence[Aside]:
        """Return two different ones."""
        every = self.asides.get(kind, ())
        if not every:
            return ()
        draw, first = divmod(draw, len(every))
        return every[first], every[(first + 1 + draw % (len(every) - 1)) % len(every)]

    # ------------------------------------------------------------------------------------------------------ questions

    @cached_property
    def _sources(self) -> Mapping[int, Sequence[tuple[Relation, int]]]:
        """Entity → the relations that lead to it, each with the entity from which it leads."""
        sources: dict[int, list[tuple[Relation, int]]] = {}
        for relation in self.relations:
            if relation.target and relation.asked:
                for entity, value in self.facts[relation].items():
                    if isinstance(value, int):
                        sources.setdefault(value, []).append((relation, entity))
        return sources

    @cached_property
    def _unique(self) -> Mapping[Relation, frozenset[int]]:
        """For each relation that may describe an entity: the entities whose value no other entity has."""
        keys = {one: self.facts[one] for one in self.relations if one.key}
        counts = {one: Counter(facts.values()) for one, facts in keys.items()}
        return {
            one: frozenset(entity for entity, value in facts.items() if counts[one][value] == 1) for one, facts in keys.items()
        }

    @cached_property
    def _endings(self) -> Sequence[tuple[Relation, Sequence[int]]]:
        return [(one, tuple(self.facts[one])) for one in self.relations if one.answers and (one.asked or one.ending)]

    def ask(self, rng: np.random.Generator, hops: int) -> Question:
        """Draw a question of ``hops`` hops."""
        for _ in range(_MOST_DRAWS):
            last, having = self._endings[int(rng.integers(len(self._endings)))]
            final = having[int(rng.integers(len(having)))]
            for _ in range(_MOST_WAYS):  # an ending is not given up at once, or those with many ways to them would be common
                if question := self._drawn(rng, hops, last, final):
                    return question
        raise ValueError(f"this world has no question of {hops} hops: make it larger, or ask for fewer hops")

    def _drawn(self, rng: np.random.Generator, hops: int, last: Relation, final: int) -> Question | None:
        path, relations = [final], [last]
        answer = self.facts[last][path[0]]
        while len(path) < hops:
            sources = [
                one for one in self._sources.get(path[0], ()) if one[0] != relations[0] and one[1] not in (*path, answer)
            ]
            if not sources:
                return None
            relation, entity = sources[int(rng.integers(len(sources)))]
            path.insert(0, entity)
            relations.insert(0, relation)
        start = self._start(rng, path[0], relations[0])
        if start is None:
            return None
        answers = tuple(filter(None, (self.shown(answer), self.aliases.get(answer) if isinstance(answer, int) else None)))
        return Question(self._worded(rng, start, relations), answers, start, tuple(relations), tuple(path))

    def _start(self, rng: np.random.Generator, entity: int, first: Relation) -> Start | None:
        keys = [
            one for one in self.relations_of[self.kinds[entity]] if one.key and one != first and entity in self._unique[one]
        ]
        ways = [*keys, *([None] if self.named else [])]
        if not ways:
            return None
        key = ways[int(rng.integers(len(ways)))]
        return Start(self.names[entity]) if key is None else Start("", key, str(self.facts[key][entity]))

    def _worded(self, rng: np.random.Generator, start: Start, relations: Sequence[Relation]) -> str:
        about = start.name if start.relation is None else start.relation.key.format(o=start.value)
        for relation in relations[:-1]:
            about = relation.asked[int(rng.integers(len(relation.asked)))].format(x=about)
        last = relations[-1]
        if last.ending:
            return last.ending.format(x=about)
        word = "Who" if last.target == "person" else "What"
        return f"{word} is {last.asked[int(rng.integers(len(last.asked)))].format(x=about)}?"


def fact_in(text: str, name: str, relation: Relation) -> str | None:
    """Return the object that the document ``text`` about ``name`` gives for ``relation``; ``None`` if it gives none."""
    sentences = text.removesuffix(".").split(". ")
    for told in relation.told:
        before, _, after = told.removesuffix(".").format(s=name, o="\0").partition("\0")
        for sentence in sentences:
            if sentence.startswith(before) and sentence.endswith(after) and len(sentence) > len(before) + len(after):
                return sentence[len(before) : len(sentence) - len(after)]
    return None
