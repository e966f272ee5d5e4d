"""Which row of a data set a task means."""

from typing import Any, NamedTuple

import numpy as np

from palestra.authoring.indices import draw_index
from palestra.authoring.rows import Rows
from palestra.errors import UsageError
from palestra.suite.data.field_map import data_set
from palestra.suite.data.files import FileRows
from palestra.suite.data.loader import load
from palestra.trajectory import Task

__all__ = ["DataSource", "DrawnRow", "draw_row", "read_rows", "rows_of"]

DataSource = str | FileRows
"""The name of a built-in data set, or a file of your own."""


class DrawnRow(NamedTuple):
    """A row, and where it comes from."""

    row: dict[str, Any]
    provenance: dict[str, Any]
    """For the reset's ``info``: the set, the split, the index and the hash of the content."""


def read_rows(data: DataSource, split: str = "", **_: Any) -> Rows:
    """Return the rows of an environment with these keyword arguments."""
    return data.rows() if isinstance(data, FileRows) else load(data, split)


def rows_of(data: DataSource, split: str, task: Task) -> tuple[str, Rows]:
    """Return the split that ``task`` means and its rows. A task that names no split means the split of its id."""
    if isinstance(data, FileRows):
        if task.split != "train":
            raise UsageError(f'{data} has no split "{task.split}": put each split into a file of its own')
        return "train", data.rows()
    splits = data_set(data).splits
    if task.split in splits and (task.split != "train" or not split):
        split = task.split
    elif task.split not in ("train", split):
        raise UsageError(f'{data} has no split "{task.split}"; there are {", ".join(splits)}')
    split = split or data_set(data).default_split
    return split, load(data, split)


def draw_row(data: DataSource, split: str, task: Task, rng: np.random.Generator) -> DrawnRow:
    """Return the row ``task.index``, or one drawn by ``rng`` if the task names none."""
    split, rows = rows_of(data, split, task)
    index = draw_index(task, len(rows), rng, f"{data}/{split} has rows")
    return DrawnRow(rows[index], {"set": str(data), "split": split, "index": index, "sha256": rows.sha256})
