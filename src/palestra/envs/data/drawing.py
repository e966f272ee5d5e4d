"""Which row a task means."""

from typing import Any, NamedTuple

import numpy as np

from palestra.envs.data.field_map import data_set
from palestra.envs.data.loader import Rows, load
from palestra.errors import UsageError
from palestra.trajectory import Task

__all__ = ["Drawn", "draw_row", "rows_of"]


class Drawn(NamedTuple):
    """A row, and where it comes from."""

    row: dict[str, Any]
    provenance: dict[str, Any]
    """For the reset's ``info``: the set, the split, the index and the hash of the content."""


def rows_of(data: str, split: str, task: Task) -> tuple[str, Rows]:
    """The split that ``task`` means and its rows. A task that names none means that of the id."""
    splits = data_set(data).splits
    if task.split in splits and (task.split != "train" or not split):
        split = task.split
    elif task.split not in ("train", split):
        raise UsageError(f'{data} has no split "{task.split}"; there are {", ".join(splits)}')
    split = split or data_set(data).default_split
    return split, load(data, split)


def draw_row(data: str, split: str, task: Task, rng: np.random.Generator) -> Drawn:
    """The row ``task.index``, or one drawn by ``rng`` where the task names none."""
    split, rows = rows_of(data, split, task)
    index = int(rng.integers(len(rows))) if task.index is None else task.index
    if not 0 <= index < len(rows):
        raise UsageError(f"{data}/{split} has rows 0 to {len(rows) - 1}, got index {index}")
    return Drawn(rows[index], {"set": data, "split": split, "index": index, "sha256": rows.sha256})
