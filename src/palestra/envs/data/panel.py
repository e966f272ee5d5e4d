"""Panels: frozen lists of tasks for evaluation, with a hash that says they are the same list and the same data.

A panel is a JSON file. Reading one checks the hash, so that a list that was edited by hand, or questions that changed under it,
is told before a model is paid to answer it.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from palestra.encoding import encode_json
from palestra.envs.data.loader import load
from palestra.errors import SchemaError
from palestra.registry import spec
from palestra.seeding import derive, derive_seed
from palestra.trajectory import Task

__all__ = ["Panel", "draw_panel", "read_panel"]


class Panel(msgspec.Struct, frozen=True):
    """Tasks, in order. Iterating gives them, so that ``rollout`` and ``evaluate`` take a panel as it is."""

    name: str
    tasks: tuple[Task, ...]
    data: dict[str, str] = {}
    """The content hash of each data set and split that the tasks point into (``GSM8K/test`` → sha256)."""
    sha256: str = ""
    """Of the tasks and the data hashes."""

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def write(self, path: Path | str) -> None:
        """Write the panel as JSON."""
        Path(path).write_bytes(msgspec.json.format(encode_json(self), indent=1) + b"\n")


def draw_panel(name: str, ids: Sequence[str], n: int, *, seed: int = 0, split: str = "") -> Panel:
    """A panel of ``n`` tasks of each id: rows without repetition from a data set, seeds from everything else."""
    tasks: list[Task] = []
    data: dict[str, str] = {}
    for id in ids:
        set_name, own_split = _data_of(id)
        if not set_name:
            tasks += [Task(id, derive_seed(seed, "panel", id, place)) for place in range(n)]
            continue
        rows = load(set_name, split or own_split)
        data[f"{set_name}/{split or own_split}"] = rows.sha256
        order = derive(seed, "panel", id).permutation(len(rows))[:n]
        tasks += [Task(id, 0, index=int(row), split=split or own_split) for row in order]
    return Panel(name, tuple(tasks), data, _hash(tasks, data))


def read_panel(path: Path | str) -> Panel:
    """The panel in ``path``, if it is whole and its data sets, as far as they are here, are the ones it was drawn from."""
    try:
        panel = msgspec.json.decode(Path(path).read_bytes(), type=Panel)
    except msgspec.MsgspecError as error:
        raise SchemaError(f"{path} is not a panel: {error}") from None
    if panel.sha256 != _hash(panel.tasks, panel.data):
        raise SchemaError(f"{path} was changed: its hash is not the one of its tasks")
    for place, expected in panel.data.items():
        set_name, _, split = place.partition("/")
        if load(set_name, split).sha256 != expected:
            raise SchemaError(f"{path} was drawn from another {place}: the data has changed since")
    return panel


def _data_of(id: str) -> tuple[str, str]:
    known = spec(id)
    return str(known.kwargs.get("data", "")), str(known.kwargs.get("split", "train"))


def _hash(tasks: Sequence[Task], data: dict[str, str]) -> str:
    return sha256(encode_json((tuple(tasks), sorted(data.items())))).hexdigest()
