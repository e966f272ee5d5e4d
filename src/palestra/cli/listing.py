"""``palestra list``: what there is to play."""

import typer

from palestra.encoding import encode_json
from palestra.errors import UnknownEnv
from palestra.registry import EnvSpec, list_envs

__all__ = ["list_command"]


def list_command(
    pattern: str = typer.Argument("*", help='A namespace ("game"), a part of an id, or a pattern ("game:*-easy").'),
    as_json: bool = typer.Option(False, "--json", help="One JSON array, an object per id."),
) -> None:
    """List the environments, a row for each family."""
    specs = list_envs(pattern)
    if as_json:
        typer.echo(encode_json([_plain(spec) for spec in specs]).decode())
        return
    if not specs:
        raise UnknownEnv(f'no environment matches "{pattern}" (palestra list)')
    _print_table(specs)


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


def _print_table(specs: list[EnvSpec]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id", style="cyan", no_wrap=True)
    table.add_column("levels")
    table.add_column("")
    # A family is one row as long as its bare id was found; a pattern such as "*-easy" finds single levels.
    found = {spec.id for spec in specs}
    rows = [spec for spec in specs if not (spec.level and spec.id.removesuffix(f"-{spec.level}") in found - {spec.id})]
    for spec in rows:
        is_family = bool(spec.levels) and not spec.id.endswith(f"-{spec.level}")
        missing = "".join(f" [needs {need.label}: {need.remedy}]" for need in spec.missing())
        table.add_row(spec.id, " ".join(spec.levels) if is_family else "", f"{spec.description}{missing}")
    console = Console()
    console.print(table)
    console.print(f"\n{len(specs)} ids, {len(rows)} rows. A bare id means its first level.", style="dim")
