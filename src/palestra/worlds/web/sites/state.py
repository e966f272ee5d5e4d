"""What an episode has changed: rows of a database before and after it, and whether a task asked for these changes.

A site has *views*: queries whose rows say in words what a person would call its state, such as an order or an address. The
difference of a view is what is gone and what is new, as multisets. A task is solved only if the differences of all views are
exactly the wanted ones, so every other change, such as a second order, is a side effect without being named.
"""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

__all__ = ["Change", "Row", "Views", "changes_between", "dump_hash", "rows_of", "unwanted"]

Row = tuple[object, ...]
Views = Mapping[str, str]
"""Name → a query of SQLite."""


class Change(NamedTuple):
    """A row that is new, or gone."""

    view: str
    row: Row
    new: bool = True


def rows_of(database: Path, views: Views) -> dict[str, Counter[Row]]:
    """Return the rows of every view."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {name: Counter(connection.execute(query).fetchall()) for name, query in views.items()}


def changes_between(before: Mapping[str, Counter[Row]], after: Mapping[str, Counter[Row]]) -> Counter[Change]:
    """Return all rows that are new or gone, each as often as it is."""
    changes: Counter[Change] = Counter()
    for view in before:
        for rows, new in ((after[view] - before[view], True), (before[view] - after[view], False)):
            changes.update({Change(view, row, new): number for row, number in rows.items()})
    return changes


def unwanted(changes: Counter[Change], wanted: Iterable[Change], allowed: Iterable[Change] = ()) -> Counter[Change]:
    """Return the changes that are neither wanted nor allowed. A wanted change that is there twice is unwanted once."""
    return changes - Counter(wanted) - Counter(allowed)


def dump_hash(database: Path) -> str:
    """Return the SHA-256 of all tables and rows of a database, sorted."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        lines = sorted(connection.iterdump())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
