"""The gallery: every family of environments with a picture or the beginning of an episode, and the facts to choose by.

The facts come from the registry (ids, levels, turns, needs), from ``scores.json`` (oracle, random play, floor, ceiling) and
from ``families.toml`` (the rest). Pictures are drawn while the site is built: games have theirs, a world is played by its
oracle and draws itself with ``render()``. A family that cannot be played on this machine shows the episode of its page.
"""

import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Callable
from html import escape
from inspect import isawaitable
from pathlib import Path
from typing import Any

import palestra
from palestra import Task, make
from palestra.errors import PalestraError
from palestra.registry import EnvSpec, list_envs
from palestra.trajectory import text_of
from palestra.viewer.pictures import Node, safe_nodes

DOCS = Path(__file__).parents[1]
SUITE = DOCS / "reference" / "suite"
FACTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("families.toml").read_text())
UNPLAYED = ("web", "science")
"""Families whose first episode takes longer than the rest together: a browser, a Java process. Their pages show one."""
MOVES = 6
"""Moves of the oracle before a picture is drawn."""
ELSEWHERE = "see its page"
"""A score that is not in ``scores.json``: the page of a family that cannot be played everywhere says what was measured."""
SHOWN = 420
"""Characters of an observation in a card."""


def generator() -> Any:
    """Return ``docs/generate.py``, which knows the families."""
    found = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def families() -> dict[str, tuple[list[EnvSpec], str]]:
    """Return family → its ids without those that only abbreviate a level, and a sentence about it."""
    module = generator()
    found = {}
    for name, specs in module.families().items():
        about = specs[0].description if specs[0].namespace == "game" else module.ABOUT[specs[0].namespace].partition(". ")[0]
        found[name] = (specs, about)
    for name, (pattern, about) in module.WORLDS.items():
        found[name] = (list_envs(pattern), about)
    return {
        name: ([one for one in specs if not module.is_bare(one)], about.removesuffix("."))
        for name, (specs, about) in found.items()
    }


def facts(name: str) -> dict[str, Any]:
    """Return what is written down about a family.

    Raises:
        KeyError: Nothing is.
    """
    if name.startswith("reasoning-"):
        kind = name.removeprefix("reasoning-")
        return {**FACTS["defaults"], **FACTS["reasoning"], "teaches": f"Reason step by step: {kind}"}
    if games := list_envs(f"game:{name}-v*"):  # its row of the catalog says what it is about
        return {**FACTS["defaults"], "kind": "game", "teaches": games[0].description, **FACTS["families"].get(name, {})}
    if name not in FACTS["families"]:
        raise KeyError(f"docs/site/families.toml has no entry for the family {name}: add [families.{name}]")
    return {**FACTS["defaults"], **FACTS["families"][name]}


def span(values: list[float]) -> str:
    """Return the range of ``values``, or where to look."""
    if not values:
        return ELSEWHERE
    low, high = min(values), max(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


def scores(specs: list[EnvSpec], table: dict[str, Any]) -> dict[str, str]:
    """Return the measured scores of a family over its ids."""
    rows = [table[one.id] for one in specs if one.id in table]
    found = {player.capitalize(): span([row[player]["mean"] for row in rows if row[player]]) for player in ("oracle", "random")}
    found["Floor"] = span([row["floor"] for row in rows])
    ceilings = [row["ceiling"] for row in rows if "ceiling" in row]
    found["Ceiling"] = span(ceilings) if ceilings else ("1.00" if rows else ELSEWHERE)
    return found


def levels(specs: list[EnvSpec]) -> str:
    """Return the levels of a family, or how many ids it has."""
    named = dict.fromkeys(level for one in specs for level in one.levels)
    return ", ".join(named) if named else f"{len(specs)} ids, one level each" if len(specs) > 1 else "one"


def turns(specs: list[EnvSpec]) -> tuple[str, str]:
    """Return the limits of turns in words, and ``one`` or ``many``."""
    limits = sorted({one.max_turns for one in specs if one.max_turns})
    if not limits:
        return "set by the task", "many"
    words = str(limits[0]) if len(limits) == 1 else f"{limits[0]} to {limits[-1]}"
    return words, "one" if limits[-1] == 1 else "many"


def tags(node: Node, page: list[str]) -> None:
    """Append the HTML of ``node``, which holds nothing but text and plain styles."""
    if isinstance(node, str):
        page.append(escape(node))
        return
    style = "; ".join(f"{name}: {value}" for name, value in node["style"].items())
    page.append(f"<{node['tag']}{f' style={chr(34)}{escape(style)}{chr(34)}' if style else ''}>")
    for child in node["children"]:
        tags(child, page)
    page.append(f"</{node['tag']}>")


def drawn(html: str) -> str:
    """Return the picture of an environment as safe HTML in one line, as Markdown needs it."""
    page: list[str] = []
    for node in safe_nodes(html):
        tags(node, page)
    return "".join(page).replace("\n", "&#10;")


def played(known: EnvSpec) -> tuple[str, str]:
    """Return the picture of an episode after some moves of the oracle, and its beginning as text."""
    with make(known.id) as env:
        observation, _ = env.reset(task=Task(known.id, 1))
        action = text_of(env.oracle())
        for _ in range(MOVES):
            step = env.step(env.oracle())
            if step.terminated or step.truncated:
                break
        shown = getattr(env.unwrapped, "render", None)
        html = shown() if shown is not None else ""
        return (drawn(html) if isinstance(html, str) and not isawaitable(html) else ""), replay(text_of(observation), action)


def replay(observation: str, action: str) -> str:
    """Return the first turn of an episode as HTML."""
    cut = [text.strip() if len(text.strip()) <= SHOWN else f"{text.strip()[:SHOWN]} …" for text in (observation, action)]
    body = "&#10;".join(
        escape(f"{who}: {text}").replace("\n", "&#10;") for who, text in zip(("environment", "oracle"), cut, strict=True)
    )
    return f'<pre tabindex="0">{body}</pre>'


def picture(name: str, specs: list[EnvSpec]) -> tuple[str, str]:
    """Return the picture of a family, or the beginning of an episode, and how it came about."""
    if (SUITE / "pictures" / f"{name}.svg").exists():
        return f'<img src="reference/suite/pictures/{name}.svg" alt="A board of {name}" loading="lazy">', "svg"
    here = [one for one in specs if not one.missing()]
    if name not in UNPLAYED:
        for known in here[:3]:
            try:
                html, text = played(known)
            except PalestraError:
                continue
            if html:
                return f'<div class="board" tabindex="0" role="group" aria-label="A picture of {name}">{html}</div>', "render()"
            return text, "played"
    blocks = re.findall(r"~~~~text\n(.*?)~~~~", (SUITE / f"{name}.md").read_text(), re.DOTALL)
    text = blocks[0] if blocks else specs[0].description
    return f'<pre tabindex="0">{escape(text[:SHOWN].strip()).replace(chr(10), "&#10;")} …</pre>', "page"


def card(name: str, specs: list[EnvSpec], about: str, table: dict[str, Any]) -> str:
    """Return the card of a family."""
    known = facts(name)
    limit, many = turns(specs)
    needs = sorted({need.label for one in specs for need in one.needs})
    shown, how = picture(name, specs)
    print(f"gallery: {name}: {how}", file=sys.stderr)
    rows = {
        "Teaches": known["teaches"],
        "Levels": levels(specs),
        "Turns": limit,
        "Tools": known["tools"],
        "Players": str(known["players"]),
        "Needs": ", ".join(needs) or "nothing",
        **scores(specs, table),
        "Trained": known["trained"] or "no run on record",
        "Built on": known["built_on"],
        "Cite": known["cite"] or "Palestra",
    }
    data = {
        "kind": known["kind"],
        "turns": many,
        "tools": "none" if known["tools"] == "none" else "some",
        "players": known["players"],
        "needs": "something" if needs else "nothing",
    }
    first = specs[0].id
    attributes = " ".join(f'data-{key}="{value}"' for key, value in data.items())
    listed = "".join(f"<dt>{key}</dt><dd>{escape(value)}</dd>" for key, value in rows.items())
    return (
        f'<article class="env" id="{name}" {attributes}>'
        f'<h2><a href="reference/suite/{name}.html">{name}</a></h2>'
        f"<p>{escape(about).replace('`', '')}.</p><figure>{shown}</figure>"
        f'<p><code>palestra play "{escape(first)}"</code></p>'
        f"<details><summary>Facts about {name}</summary><dl>{listed}</dl></details></article>"
    )


FILTERS = {
    "kind": ("game", "questions", "code", "world", "tools", "search", "terminal", "web"),
    "turns": ("one", "many"),
    "tools": ("none", "some"),
    "players": ("1", "2"),
    "needs": ("nothing", "something"),
}


def controls() -> str:
    """Return the filters. They appear only if JavaScript runs."""
    boxes = []
    for name, values in FILTERS.items():
        options = "".join(f'<option value="{value}">{value}</option>' for value in ("any", *values))
        boxes.append(f'<label>{name.capitalize()} <select name="{name}">{options}</select></label>')
    return f'<form class="filters" hidden aria-label="Filter the families">{"".join(boxes)} <output></output></form>'


def write(put: Callable[[str, str], None]) -> list[dict[str, Any]]:
    """Write the gallery, and return the pages of the families for the navigation."""
    table = json.loads((SUITE / "scores.json").read_text())
    found = families()
    cards = [card(name, specs, about, table) for name, (specs, about) in found.items()]
    head = (
        "---\nhide:\n  - toc\n---\n\n# Environment gallery\n\n"
        f"{len(found)} families with {sum(len(specs) for specs, _ in found.values())} ids. "
        "Scores are mean total rewards over the ids of a family that have been measured; the page of a family has the "
        "intervals and the conditions. The floor is the score of the best constant answer, the ceiling that of the best "
        "player. [All pages of the suite](reference/suite/index.md).\n\n"
    )
    put("gallery.md", f'{head}{controls()}\n\n<div class="gallery">{"".join(cards)}</div>\n')
    kinds: dict[str, list[dict[str, str]]] = {}
    for name in found:
        kinds.setdefault(facts(name)["kind"].capitalize(), []).append({name: f"reference/suite/{name}.md"})
    return [{"The suite": "reference/suite/index.md"}, *({kind: inside} for kind, inside in kinds.items())]


if __name__ == "__main__":
    print(palestra.__version__, len(families()))
