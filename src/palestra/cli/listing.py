"""``palestra list``: the registered environments."""

from itertools import groupby

import typer

from palestra.encoding import encode_json
from palestra.envs.panels import list_panels, load_panel
from palestra.errors import UnknownEnv
from palestra.registry import EnvSpec, list_envs

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
_MOST_ROWS = 40
"""A namespace with more families is one row of the whole list; ``palestra list NAMESPACE`` shows them."""


def list_command(
    pattern: str = typer.Argument(
        _ALL, help='A namespace ("game"), part of an id, a pattern ("game:*-easy"), "worlds" or "panels".'
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON array with one object per id. No namespace is folded."),
) -> None:
    """List the environments, one row per family. A namespace with many families is folded into one row.

    `palestra list worlds` shows the worlds, whose episodes have many turns, such as craft and babyai: one paragraph each.
    `palestra list panels` lists the named panels of tasks.
    """
    if pattern == "panels":
        _print_panels(as_json)
        return
    specs = [known for name in WORLDS for known in list_envs(f"{name}:*")] if pattern == "worlds" else list_envs(pattern)
    if as_json:
        typer.echo(encode_json([_plain(spec) for spec in specs]).decode())
        return
    if pattern == "worlds":
        _print_worlds(specs)
        return
    if not specs:
        raise UnknownEnv(f'no environment matches "{pattern}": `palestra list` shows all of them')
    _print_table(specs, fold=pattern == _ALL)


def _print_panels(as_json: bool) -> None:
    panels = [load_panel(name) for name in list_panels()]
    if as_json:
        rows = [{"name": one.name, "description": one.description, "tasks": len(one), "sha256": one.sha256} for one in panels]
        typer.echo(encode_json(rows).decode())
        return
    width = max((len(one.label) for one in panels), default=0)
    for one in panels:
        typer.echo(f"{one.label:<{width}}  {len(one):>5} tasks  {one.description}")
    typer.echo("\npalestra eval POLICY --panel NAME plays a panel.")


def _print_worlds(specs: list[EnvSpec]) -> None:
    """One paragraph per world: what it is, how many ids it has, one of them, and what is missing here."""
    from rich.console import Console
    from rich.markup import escape
    from rich.padding import Padding

    console = Console(highlight=False)
    for namespace, members in groupby(specs, key=_namespace):
        ids = list(members)
        missing = {need: sum(need in spec.missing() for spec in ids) for spec in ids for need in spec.missing()}
        example = next((spec.id for spec in ids if not spec.missing()), ids[0].id)
        lines = [f"{len(ids)} ids, such as {example}: palestra list {namespace}"]
        lines += [f"{_how_many(number, ids)} {need.label}: {need.remedy}" for need, number in missing.items()]
        console.print(f"[cyan]{namespace}[/cyan]  {escape(WORLDS[namespace])}")
        for line in lines:
            console.print(Padding(escape(line), (0, 0, 0, 4)), style="dim")


def _how_many(number: int, ids: list[EnvSpec]) -> str:
    return "All of them need" if number == len(ids) else "One of them needs" if number == 1 else f"{number} of them need"


def _plain(spec: EnvSpec) -> dict[str, object]:
    return {
        "id": spec.id,
        "namespace": spec.namespace,
        "family": spec.family,
        "level": spec.level,
        "levels": spec.levels,
        "tags": sorted(spec.tags),
        "max_turns": spec.max_turns,
        "missing": [need.remedy for need in spec.missing()],
        "description": spec.description,
    }


def _print_table(specs: list[EnvSpec], fold: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id", style="cyan", no_wrap=True)
    table.add_column("")
    rows = _rows(specs)
    for namespace, members in groupby(sorted(rows, key=_namespace), key=_namespace):
        family = list(members)
        if fold and len(family) > _MOST_ROWS:
            table.add_row(f"{namespace}:*", _folded(namespace, family))
            continue
        for spec in family:
            missing = "".join(f" [needs {need.label}: {need.remedy}]" for need in spec.missing())
            table.add_row(spec.id, escape(f"{spec.description}{missing}") + _levels(spec))
    console = Console()
    console.print(table)
    console.print(f"\n{len(specs)} ids of {len(rows)} families. An id without a level means its first level.", style="dim")


def _rows(specs: list[EnvSpec]) -> list[EnvSpec]:
    """Keep one row per family if its bare id was found; a pattern such as "*-easy" finds single levels."""
    found = {spec.id for spec in specs}
    return [spec for spec in specs if not (spec.level and spec.id.removesuffix(f"-{spec.level}") in found - {spec.id})]


def _levels(spec: EnvSpec) -> str:
    is_family = bool(spec.levels) and not spec.id.endswith(f"-{spec.level}")
    return f" [dim]Levels: {' '.join(spec.levels)}[/dim]" if is_family else ""


def _folded(namespace: str, family: list[EnvSpec]) -> str:
    topics = ", ".join(sorted(frozenset().union(*(spec.tags for spec in family))))
    return f"{len(family)} families ({topics}): palestra list {namespace}"


def _namespace(spec: EnvSpec) -> str:
    return spec.namespace
