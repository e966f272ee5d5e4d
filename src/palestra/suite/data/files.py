"""Rows of a file of your own: JSONL, CSV or Parquet, with your names for the fields.

The whole file is read and checked before the first task, so that a broken row is one message with its line number, and not
an episode that fails in the middle of a run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from palestra.authoring.rows import Rows, hashed
from palestra.errors import SchemaError, UsageError
from palestra.suite.data.loader import FORMATS, numbered_rows

__all__ = ["FileRows"]


@dataclass(frozen=True)
class FileRows:
    """The rows of one file."""

    path: str
    fields: tuple[tuple[str, str], ...]
    """Our name of a field → its name in the file. Every row must have these."""
    optional: tuple[tuple[str, str], ...] = ()
    """The same for fields that may be absent."""
    check: Callable[[dict[str, Any]], str] | None = field(default=None, compare=False)
    """Returns what is wrong with a row, or an empty string."""
    checked_as: str = ""
    """Names ``check``: two sources with the same name check the same."""

    def rows(self) -> Rows:
        """Return all rows. They are read again when the file changes.

        Raises:
            UsageError: There is no such file, it cannot be opened, or its format is unknown.
            SchemaError: A row is broken; the message names the file and the line.
        """
        file = Path(self.path).expanduser()
        if file.suffix not in FORMATS:
            raise UsageError(f"{self.path} is not a data file: its name must end in {', '.join(FORMATS)}")
        try:
            state = file.stat()
            return _read(self, str(file.absolute()), state.st_mtime_ns, state.st_size)
        except OSError as error:
            raise UsageError(
                f"cannot read {self.path}: {error.strerror or error}. A relative path starts at the working folder"
            ) from None

    def __str__(self) -> str:
        return self.path


@lru_cache(maxsize=32)
def _read(source: FileRows, path: str, changed: int, size: int) -> Rows:
    """Read the file. The other parameters are part of the cache's key: another file, or one that changes, is read again."""
    rows: list[dict[str, Any]] = []
    for line, raw in numbered_rows(Path(source.path).expanduser()):  # as the user named it, for the messages
        row = {ours: _value(raw, theirs) for ours, theirs in (*source.fields, *source.optional)}
        lacking = next(((ours, theirs) for ours, theirs in source.fields if row[ours] in (None, "")), None)
        row["row"] = dict(raw)
        problem = _absence(raw, *lacking) if lacking else source.check(row) if source.check is not None else ""
        if problem:
            raise SchemaError(f"{source.path}:{line}: {problem}")
        rows.append(row)
    if not rows:
        raise SchemaError(f"{source.path} has no rows")
    return hashed(rows, source.path)


def _absence(raw: Mapping[str, Any], ours: str, theirs: str) -> str:
    """Return what is wrong with a row whose field ``theirs`` has no value."""
    if theirs in raw:
        return f'the field "{theirs}" is empty: fill it, or remove the row'
    option = "answer" if ours == "tests" else ours
    return (
        f'the row has no field "{theirs}"; it has {", ".join(map(str, raw))}. If the field has another name, add {option}=NAME '
        f"to the options of the id, after ? or &"
    )


def _value(row: Any, path: str) -> Any:
    """Return the field ``path`` of ``row``, in which dots go into nested fields; ``None`` if it is absent."""
    if path in row:
        return row[path]
    for part in path.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row
