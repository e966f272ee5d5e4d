"""An invented world: people, towns, firms, works and events from a seed, in any number. No model has read about it.

All names share one list of invented words: a family, a town, a firm and an event may have the same word in their names. So a
search finds namesakes, and only a whole name finds its entity.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.worlds.deepsearch.graph import Graph, Relation, Value
from palestra.worlds.deepsearch.phrases import ASIDES, INTROS, RELATIONS

__all__ = ["LEAST_DOCUMENTS", "invented_world"]

LEAST_DOCUMENTS = 200
MOST_DOCUMENTS = 2_000_000
_SHARES = {"person": 8, "town": 4, "firm": 3, "work": 3, "event": 2}
"""Of 20 documents."""
_ONSETS = (
    "b",
    "br",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "k",
    "kr",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "sk",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "au", "ei")
_CODAS = ("n", "r", "l", "k", "m", "rn", "lt", "sk", "x", "nd")
_FORENAME_ENDS = ("a", "o", "i", "an", "el", "us")
_ADJECTIVES = ("Amber", "Silent", "Broken", "Hidden", "Golden", "Borrowed", "Last", "Winter", "Paper", "Crooked")
_NOUNS = ("Clock", "Orchard", "Letter", "Crown", "Mirror", "Voyage", "Garden", "Staircase")
_TRADES = (
    "Lanterns",
    "Glassworks",
    "Shipping",
    "Press",
    "Brewery",
    "Weavers",
    "Foundry",
    "Optics",
    "Railways",
    "Bakeries",
    "Clocks",
)
_MEETINGS = ("Regatta", "Congress", "Festival", "Fair", "Biennale", "Tournament", "Parade", "Jubilee")
_FORMS = {
    "town": (
        "Upper {}",
        "Lower {}",
        "New {}",
        "Old {}",
        "{} Bridge",
        "{} Harbor",
        "{} Heath",
        "{} Mill",
        "{} Cross",
        "{} Ferry",
    ),
    "firm": tuple(f"{{}} {trade}" for trade in _TRADES),
    "work": tuple(f"The {adjective} {noun} of {{}}" for adjective in _ADJECTIVES for noun in _NOUNS),
    "event": tuple(f"{{}} {meeting}" for meeting in _MEETINGS),
}
_FORENAMES = 240
_YEARS = (1500, 2000)


def invented_world(seed: int, documents: int) -> Graph:
    """Invent a world of about ``documents`` documents."""
    if not LEAST_DOCUMENTS <= documents <= MOST_DOCUMENTS:
        raise UsageError(f"documents must be from {LEAST_DOCUMENTS} to {MOST_DOCUMENTS}, got {documents}")
    rng = derive(seed, "deepsearch", documents)
    sizes = {kind: documents * share // sum(_SHARES.values()) for kind, share in _SHARES.items()}
    words = _words(rng, max(40, documents // 5))
    names: list[str] = []
    members: dict[str, range] = {}
    for kind, size in sizes.items():
        members[kind] = range(len(names), len(names) + size)
        names += _names(rng, kind, size, words)
    kinds = [kind for kind, size in sizes.items() for _ in range(size)]
    facts = {relation: _facts(rng, relation, members) for relation in RELATIONS}
    return Graph(names, kinds, RELATIONS, facts, INTROS, ASIDES, rng)


def _words(rng: np.random.Generator, count: int) -> list[str]:
    """Invent ``count`` different words."""
    words: dict[str, None] = {}
    while len(words) < count:
        draws = rng.integers(2**31, size=(count, 5)).tolist()
        for first, second, third, last, long in draws:
            middle = _ONSETS[second % len(_ONSETS)] + _VOWELS[third % len(_VOWELS)] if long % 2 else ""
            start = _ONSETS[first % len(_ONSETS)] + _VOWELS[first // 64 % len(_VOWELS)]
            end = _ONSETS[third // 64 % len(_ONSETS)] + _VOWELS[last % len(_VOWELS)] + _CODAS[last // 64 % len(_CODAS)]
            words[(start + middle + end).capitalize()] = None
    return list(words)[:count]


def _names(rng: np.random.Generator, kind: str, size: int, words: Sequence[str]) -> list[str]:
    """Combine forms and words into ``size`` different names."""
    forms = _FORMS[kind] if kind in _FORMS else _forenames(rng)
    picked = rng.choice(len(forms) * len(words), size=size, replace=False).tolist()
    return [forms[pick % len(forms)].format(words[pick // len(forms)]) for pick in picked]


def _forenames(rng: np.random.Generator) -> tuple[str, ...]:
    ends = rng.integers(len(_FORENAME_ENDS), size=_FORENAMES).tolist()
    stems = _words(rng, _FORENAMES)
    return tuple(f"{stem}{_FORENAME_ENDS[end]} {{}}" for stem, end in zip(stems, ends, strict=True))


def _facts(rng: np.random.Generator, relation: Relation, members: Mapping[str, range]) -> dict[int, Value]:
    having = members[relation.kind]
    if not relation.target:
        return dict(zip(having, _values(rng, relation, len(having)), strict=True))
    targets = members[relation.target]
    drawn = rng.integers(len(targets), size=len(having))
    if relation.kind == relation.target:  # no entity is related to itself
        own = np.arange(len(having))
        drawn = np.where(drawn == own, (own + 1) % len(having), drawn)
    return dict(zip(having, (drawn + targets.start).tolist(), strict=True))


def _values(rng: np.random.Generator, relation: Relation, size: int) -> list[str]:
    if not relation.key:
        return [str(year) for year in rng.integers(*_YEARS, size=size).tolist()]
    numbers = rng.choice(max(900_000, 4 * size), size=size, replace=False).tolist()
    return [str(number + 1000) for number in numbers]
