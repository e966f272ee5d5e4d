"""``palestra prefetch``: fetch data sets while there is a network."""

import typer

from palestra.envs.data import data_set, data_set_names, load
from palestra.envs.data.loader import prefetch
from palestra.errors import UsageError
from palestra.registry import list_envs

__all__ = ["prefetch_command"]


def prefetch_command(
    targets: list[str] = typer.Argument(..., metavar="ID...", help='Ids ("math:GSM8K"), patterns ("eval:*") or data sets.'),
) -> None:
    """Download the data that environments draw from into the data folder (PALESTRA_DATA)."""
    for name, split in _wanted(targets):
        if not data_set(name).source:
            rows = load(name, split)
            typer.echo(f"{name}/{split}: {len(rows)} rows, sha256 {rows.sha256[:16]}, nothing to download ({rows.origin})")
            continue
        path = prefetch(name, split)
        rows = load(name, split)
        typer.echo(f"{name}/{split}: {len(rows)} rows, sha256 {rows.sha256[:16]}, in {path}")


def _wanted(targets: list[str]) -> list[tuple[str, str]]:
    """The data sets and splits that ``targets`` name, each once."""
    found: dict[tuple[str, str], None] = {}
    for target in targets:
        if target in data_set_names():
            found.update({(target, split): None for split in data_set(target).splits})
            continue
        specs = [known for known in list_envs(target) if "data" in known.kwargs]
        exact = [known for known in specs if known.id == target]
        if not specs:
            raise UsageError(f'"{target}" draws from no data set; there are {", ".join(data_set_names())}')
        for known in exact or specs:
            found[str(known.kwargs["data"]), str(known.kwargs["split"])] = None
    return list(found)
