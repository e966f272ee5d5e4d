"""The tasks of the encyclopedia: six templates, graded by the answer or by the page at which the agent stops."""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import unquote

import numpy as np

from palestra.foundation.seeding import derive
from palestra.worlds.deepsearch.graph import Graph, Question, Relation, fact_in
from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand, NotShown, Plan, Walk
from palestra.worlds.web.sites.state import Views
from palestra.worlds.web.sites.wiki.articles import HOST, address_of, documents_of, mentions, world_of

__all__ = ["WIKI", "Encyclopedia", "town"]

_HERE = "palestra.worlds.web.sites.wiki.app"
_BOX = "Search the encyclopedia"
WIKI = Site(HOST, f"{_HERE}:application", f"{_HERE}:seed", f"{_HERE}:prepare", scripts=False, database="wiki.sqlite")


# ---------------------------------------------------------------------------------------------------------------- the oracle


def _articles(walk: Walk) -> dict[str, str]:
    """Return title → text of the articles that were seen in this walk."""
    articles = {}
    for seen in walk.seen:
        if re.fullmatch(rf"http://{HOST}/wiki/[^/]+", seen.address):
            start = next(number for number, element in enumerate(seen.elements) if element.role == "paragraph")
            end = next(number for number, element in enumerate(seen.elements) if number > start and element.role == "paragraph")
            parts = [element.name or element.value for element in seen.elements[start:end]]
            text = re.sub(r"\s+([.,;:!?])", r"\1", " ".join(part for part in parts if part))
            articles[unquote(seen.address.rpartition("/")[2]).replace("_", " ")] = text
    return articles


def _open_article(walk: Walk, title: str) -> str:
    """Return the next action on the way to an article: a link on this page, or a search for its title."""
    link = walk.find(title, "link")
    return f"click [{link.ref}]" if link else _search(walk, title)


def _search(walk: Walk, words: str) -> str:
    return f"type [{walk.need(_BOX, 'searchbox').ref}] [{words}] [1]"


def _start_of(walk: Walk, question: Question) -> str | None:
    """Return the name of the first entity of a question, if it is known."""
    start = question.start
    if start.relation is None:
        return start.name
    articles = _articles(walk).items()
    return next((name for name, text in articles if fact_in(text, name, start.relation) == start.value), None)


def _find_start(walk: Walk, question: Question) -> str:
    """Search for the value that describes the first entity, and read the results in order."""
    if walk.path != "/search":
        return _search(walk, question.start.value)
    read = _articles(walk)
    results = (element for element in walk.elements if element.role == "link" and element.name != "Main page")
    unread = next((link for link in results if link.name not in read), None)
    if unread is None:
        raise NotShown("no result of the search is the one that the question describes")
    return f"click [{unread.ref}]"


def _follow(question: Question, ending: Callable[[Walk, str], str]) -> Plan:
    """Read one article after another, as the question describes, and do ``ending`` with the last name."""

    def plan(walk: Walk) -> str:
        name = _start_of(walk, question)
        if name is None:
            return _find_start(walk, question)
        for relation in question.relations:
            read = _articles(walk)
            fact = fact_in(read[name], name, relation) if name in read else None
            if fact is None:
                return _open_article(walk, name)
            name = fact
        return ending(walk, name)

    return plan


def _answer(walk: Walk, name: str) -> str:
    return f"stop [{name}]"


def _arrive(walk: Walk, name: str) -> str:
    return "stop []" if walk.here.address == address_of(name) else _open_article(walk, name)


# ------------------------------------------------------------------------------------------------------------- the templates


def _asked(hops: int) -> Callable[[int, Graph, np.random.Generator], Errand]:
    def errand(seed: int, graph: Graph, rng: np.random.Generator) -> Errand:
        question = graph.ask(rng, hops)
        goal = f"{question.text} Answer with a name or a number alone."
        return Errand("", goal, f"http://{HOST}/", _follow(question, _answer), question.answers)

    return errand


def _opened(seed: int, graph: Graph, rng: np.random.Generator) -> Errand:
    while not isinstance(_value(graph, question := graph.ask(rng, 1)), int):
        pass
    about = question.text.removesuffix("?").partition(" is ")[2]
    goal = f"Open the article about {about}, and stop there."
    plan = _follow(question, _arrive)
    return Errand("", goal, f"http://{HOST}/", plan, ends_at=address_of(question.answers[0]))


def _value(graph: Graph, question: Question) -> object:
    return graph.facts[question.relations[-1]][question.path[-1]]


def _compared(seed: int, graph: Graph, rng: np.random.Generator) -> Errand:
    relation, words = (
        (_relation(graph, "birth"), "Which person was born earlier, {} or {}?"),
        (_relation(graph, "population"), "Which town has fewer inhabitants, {} or {}?"),
    )[int(rng.integers(2))]
    facts = graph.facts[relation]
    having = list(facts)
    while True:
        pair = [having[int(number)] for number in rng.choice(len(having), size=2, replace=False)]
        if facts[pair[0]] != facts[pair[1]]:
            break
    names = [graph.names[entity] for entity in pair]
    least = min(pair, key=lambda entity: int(facts[entity]))

    def plan(walk: Walk) -> str:
        read = _articles(walk)
        for name in names:
            if name not in read:
                return _open_article(walk, name)
        return f"stop [{min(names, key=lambda name: int(fact_in(read[name], name, relation) or 0))}]"

    goal = f"{words.format(*names)} Answer with the name alone."
    return Errand("", goal, f"http://{HOST}/", plan, (graph.names[least],))


def _relation(graph: Graph, name: str) -> Relation:
    return next(relation for relation in graph.relations if relation.name == name)


def _linked(seed: int, graph: Graph, rng: np.random.Generator) -> Errand:
    documents = documents_of(seed)
    while True:
        title = graph.names[int(rng.integers(len(graph.names)))]
        number = sum(document.title != title and mentions(document.text, title) for document in documents)
        if number >= 2:
            break

    def plan(walk: Walk) -> str:
        if walk.here.address == f"{address_of(title)}/links":
            return f"stop [{sum(document.role == 'listitem' for document in walk.elements)}]"
        if walk.here.address == address_of(title):
            return walk.click("What links here", "link")
        return _open_article(walk, title)

    goal = f"How many other articles link to the article {title}? Answer with the number alone."
    return Errand("", goal, f"http://{HOST}/", plan, (str(number),))


_TEMPLATES: Mapping[str, Callable[[int, Graph, np.random.Generator], Errand]] = {
    "fact": _asked(1),
    "open": _opened,
    "two-hop": _asked(2),
    "compare": _compared,
    "links": _linked,
    "three-hop": _asked(3),
}


class Encyclopedia:
    """Six templates of questions. Nothing can be changed."""

    sites = (WIKI,)
    views: ClassVar[Mapping[str, Views]] = {}
    levels: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "easy": ("fact", "open"),
        "medium": ("two-hop", "compare", "links"),
        "hard": ("three-hop",),
    }

    def errand(self, seed: int, template: str) -> Errand:
        """Return the task of ``template`` for the world of ``seed``."""
        made = _TEMPLATES[template](seed, world_of(seed), derive(seed, "wiki", template))
        return Errand(template, made.goal, made.start, made.plan, made.answers, made.ends_at)


town = Encyclopedia()
