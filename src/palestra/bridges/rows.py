"""Tasks as rows of another trainer's data set.

The task is JSON in one column: a column of objects would give each row the fields of all rows, filled with ``None``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.trajectory import Task

__all__ = ["task_of", "task_rows", "task_text"]


def task_rows(tasks: Iterable[Task], **columns: Any) -> list[dict[str, Any]]:
    """Return one row per task, with the task in the column ``task`` and the same ``columns`` in every row."""
    return [{**columns, "task": task_text(task)} for task in tasks]


def task_text(task: Task) -> str:
    """Return ``task`` as the JSON text that a column of a data set holds."""
    return encode_json(task).decode()


def task_of(held: Any) -> Task:
    """Return the task of a row with a column ``task``, or of the column itself: JSON, a mapping, or a ``Task``.

    Raises:
        UsageError: There is no task in it.
    """
    value = held["task"] if isinstance(held, Mapping) and "task" in held else held
    if isinstance(value, Task):
        return value
    if isinstance(value, Mapping) and "env" not in value:
        raise UsageError(f'the row has no task in its column "task", only {sorted(value)}; make the rows with task_rows(tasks)')
    try:
        return decode_json(value if isinstance(value, str) else encode_json(dict(value)), Task)
    except (SchemaError, TypeError, ValueError) as error:
        raise UsageError(f"a task as JSON was expected, as task_rows(tasks) writes it, not {value!r}: {error}") from None
