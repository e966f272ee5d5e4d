"""A search that asks the database. Search engines would need an index of their own for every episode."""

from typing import Any

__all__ = ["having_words"]

_MOST_WORDS = 10


def having_words(rows: Any, field: str, query: str) -> Any:
    """Return the rows that have every word of ``query`` in ``field``."""
    for word in query.split()[:_MOST_WORDS]:
        rows = rows.filter(**{f"{field}__icontains": word})
    return rows
