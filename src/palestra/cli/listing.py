"""``palestra list``: the registered environments, folded so that the whole list fits on a screen of 80 columns."""

from collections import Counter
from itertools import groupby

import typer

from palestra.cli.results import json_option
from palestra.errors import UnknownEnv
from palestra.foundation.encoding import encode_json
from palestra.registry import EnvSpec, Need, list_envs

__all__ = ["list_command"]

_ALL = "*"
WORLDS = {
    "craft": "Craft items by recipes, of Minecraft or invented.",
    "babyai": "Find and move objects in rooms: minigrid's BabyAI levels.",
    "science": "Experiments of ScienceWorld.",
    "house": "Household tasks in rooms: ALFWorld's six types.",
    "text": "Text adventures of TextWorld.",
    "search": "Questions of several hops over a search tool.",
    "tools": "Serve users by calling functions: simulated APIs and service desks.",
    "terminal": "Work in a real shell in a box.",
    "web": "Use pages in a real browser.",
}
"""The namespaces of the worlds, and what one does there."""
_QUESTIONS = {
    "game": "Games with rules, levels and an oracle: Sudoku, Mastermind, Sokoban, …",
    "rg": "Questions of reasoning-gym: logic, algebra, graphs, puzzles.",
    "math": "Mathematical problems with checked answers.",
    "code": "Programs to write, judged by tests in a box.",
    "qa": "Questions with short answers.",
    "logic": "Does a statement follow from facts and rules?",
    "eval": "The same data sets, split for evaluation.",
}
"""The other namespaces that Palestra ships."""


def list_command(
    pattern: str = typer.Argument(
        _ALL, help='A namespace ("game"), part of an id, a pattern ("game:*-easy"), "worlds" or "panels".'
    ),
    tag: list[str] = typer.Option([], help="Keep environments with this tag, such as multi-turn or tools. May be repeated."),
    ready: bool = typer.Option(False, "--ready", help="Keep environments that can run here, with nothing left to install."),
    as_json: bool = json_option("Print one JSON array with one object per id. Nothing is folded."),
) -> None:
    """List the environments: without a pattern one row per namespace, otherwise one entry per family.

    `palestra list worlds` shows the worlds, whose episodes have many turns, such as craft and babyai: one paragraph each.
    `palestra list panels` lists the named panels of tasks.
    """
    if pattern == "panels":
        _print_panels(as_json)
        return
    matches = [spec for name in WORLDS for spec in list_envs(f"{name}:*")] if pattern == "worlds" else list_envs(pattern)
    unmet = {need for need in {need for spec in matches for need in spec.needs} if not need.met()}
    specs = [spec for spec in matches if spec.tags >= set(tag) and not (ready and _missing(spec, unmet))]
    if as_json:
        typer.echo(encode_json([_plain(spec, unmet) for spec in specs]).decode())
        return
    if not specs:
        raise UnknownEnv(_nothing(pattern, matches, tag))
    if pattern == "worlds":
        _print_worlds(specs, unmet)
    elif pattern == _ALL:
        _print_namespaces(specs, unmet)
    else:
        _print_families(specs, unmet)


def _missing(spec: EnvSpec, unmet: set[Need]) -> list[Need]:
    """The needs of ``spec`` that are not met. Hundreds of ids share a need, and to look for its module takes a while."""
    return [need for need in spec.needs if need in unmet]


def _nothing(pattern: str, specs: list[EnvSpec], tags: list[str]) -> str:
    """Why the list is empty."""
    if not specs:
        return f'no environment matches "{pattern}": `palestra list` shows all of them'
    offered = sorted(frozenset().union(*(spec.tags for spec in specs)))
    if unknown := sorted(set(tags) - set(offered)):
        return f'no environment here has the tag "{unknown[0]}": the tags are {", ".join(offered)}'
    return f"none of the {len(specs)} environments passes --tag and --ready together"


def _print_panels(as_json: bool) -> None:
    from palestra.suite.panels import list_panels, load_panel

    panels = [load_panel(name) for name in list_panels()]
    if as_json:
        rows = [
            {"name": panel.name, "description": panel.description, "tasks": len(panel), "sha256": panel.sha256}
            for panel in panels
        ]
        typer.echo(encode_json(rows).decode())
        return
    width = max((len(panel.label) for panel in panels), default=0)
    for panel in panels:
        typer.echo(f"{panel.label:<{width}}  {len(panel):>5} tasks  {panel.description}")
    typer.echo("\npalestra eval POLICY --panel NAME plays a panel.")


def _print_worlds(specs: list[EnvSpec], unmet: set[Need]) -> None:
    """One paragraph per world: what it is, how many ids it has, one of them, and what is missing here."""
    from rich.console import Console

    console = Console(highlight=False)
    for namespace, members in groupby(specs, key=_namespace):
        ids = list(members)
        missing = Counter(need for spec in ids for need in _missing(spec, unmet))
        example = next((spec.id for spec in ids if not _missing(spec, unmet)), ids[0].id)
        lines = [f"{len(ids)} ids, such as {example}: palestra list {namespace}"]
        lines += [f"{_how_many(number, ids)} {need.label}: {need.remedy}" for need, number in missing.items()]
        console.print(f"[cyan]{namespace}[/cyan]  {_escaped(WORLDS[namespace])}")
        for line in lines:
            console.print(f"    {_escaped(line)}", style="dim", soft_wrap=True)  # unbroken, so that a command can be copied


def _how_many(number: int, ids: list[EnvSpec]) -> str:
    return "All of them need" if number == len(ids) else "One of them needs" if number == 1 else f"{number} of them need"


def _plain(spec: EnvSpec, unmet: set[Need]) -> dict[str, object]:
    return {
        "id": spec.id,
        "namespace": spec.namespace,
        "family": spec.family,
        "level": spec.level,
        "levels": spec.levels,
        "tags": sorted(spec.tags),
        "max_turns": spec.max_turns,
        "missing": [need.remedy for need in _missing(spec, unmet)],
        "description": spec.description,
    }


def _print_namespaces(specs: list[EnvSpec], unmet: set[Need]) -> None:
    """One row per namespace: its name, the number of its ids, and what one does there."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("namespace", style="cyan", no_wrap=True)
    table.add_column("families", justify="right")
    table.add_column("ids", justify="right")
    table.add_column("")
    for namespace, members in groupby(sorted(specs, key=_namespace), key=_namespace):
        ids = list(members)
        lacking = sum(bool(_missing(spec, unmet)) for spec in ids)
        about = _escaped(WORLDS.get(namespace) or _QUESTIONS.get(namespace) or ids[0].description)
        note = f" [yellow]{lacking} not ready.[/yellow]" if lacking else ""
        table.add_row(namespace, str(len(_rows(ids))), str(len(ids)), about + note)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"\n{len(specs)} ids. palestra list NAMESPACE shows families and levels, palestra show ID the rules.",
        style="dim",
    )


def _print_families(specs: list[EnvSpec], unmet: set[Need]) -> None:
    """One entry per family: its id and levels, and below them what it is and what is missing here."""
    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False)
    rows = _rows(specs)
    for spec in rows:
        console.print(f"[cyan]{_escaped(spec.id)}[/cyan] {_levels(spec)}".rstrip(), soft_wrap=True)
        if spec.description:
            console.print(Padding(_escaped(spec.description), (0, 0, 0, 4)))
        for need in _missing(spec, unmet):
            lacking = _escaped(f"[needs {need.label}: {need.remedy}]")
            console.print(f"    [yellow]{lacking}[/yellow]", soft_wrap=True)  # unbroken, so that the command can be copied
    ends = "An id without a level means its first level." if any(spec.levels for spec in rows) else ""
    console.print(f"\n{len(specs)} ids of {len(rows)} families. {ends}".rstrip(), style="dim")


def _rows(specs: list[EnvSpec]) -> list[EnvSpec]:
    """Keep one row per family if its bare id was found; a pattern such as "*-easy" finds single levels."""
    ids = {spec.id for spec in specs}
    return [spec for spec in specs if not (spec.level and spec.id.removesuffix(f"-{spec.level}") in ids - {spec.id})]


def _levels(spec: EnvSpec) -> str:
    is_family = bool(spec.levels) and not spec.id.endswith(f"-{spec.level}")
    return f"[dim]levels {' '.join(spec.levels)}[/dim]" if is_family else ""


def _escaped(text: str) -> str:
    """``text`` in which rich sees no markup."""
    from rich.markup import escape

    return escape(text)


def _namespace(spec: EnvSpec) -> str:
    return spec.namespace
