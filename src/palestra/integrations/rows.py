"""Tasks as rows of another trainer's data set.

The task is JSON in one column: a column of objects would give each row the fields of all rows, filled with ``None``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from palestra.encoding import decode_json, encode_json
from palestra.errors import UsageError
from palestra.trajectory import Task

__all__ = ["task_of", "task_rows"]


def task_rows(tasks: Iterable[Task], **columns: Any) -> list[dict[str, Any]]:
    """Return one row per task, with the task in the column ``task`` and the same ``columns`` in every row."""
    return [{**columns, "task": encode_json(task).decode()} for task in tasks]


def task_of(row: Mapping[str, Any]) -> Task:
    """Return the task of a row: JSON, a mapping, or a ``Task`` in its column ``task``."""
    value = row.get("task")
    if isinstance(value, Task):
        return value
    if isinstance(value, str):
        return decode_json(value, Task)
    if isinstance(value, Mapping):
        return decode_json(encode_json(dict(value)), Task)
    raise UsageError(f'the row has no task in its column "task", only {sorted(row)}; make the rows with task_rows(tasks)')
