"""What is searched, and what is found.

A corpus is JSON lines: ``text`` (or ``contents``, as Search-R1 writes it), and optionally ``id`` and ``title``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from palestra.errors import SchemaError

__all__ = ["Document", "Hit", "Retriever", "read_corpus"]


class Document(NamedTuple):
    """One piece of text that can be found."""

    id: str
    title: str
    text: str


class Hit(NamedTuple):
    """A document that was found, and how well it fits."""

    document: Document
    score: float


class Retriever(Protocol):
    """Finds documents. The same corpus and query give the same documents in the same order."""

    @property
    def source(self) -> str:
        """What is searched: the content hash of the index. Trajectories record it with every call."""
        ...

    async def retrieve(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """The best ``k`` documents for each query, best first."""
        ...


def read_corpus(path: Path | str) -> Iterator[Document]:
    """The documents of a JSON-lines file; ``SchemaError`` names the line that is not one."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _document(line, number)


def _document(line: bytes, number: int) -> Document:
    try:
        row: Any = msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"line {number} of the corpus is not JSON: {error}") from None
    text = row.get("text", row.get("contents")) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise SchemaError(f'line {number} of the corpus has no "text" (or "contents")')
    title = row.get("title", "")
    if not title and "text" not in row:  # Search-R1 puts the title into the first line, in quotes
        first, newline, rest = text.partition("\n")
        if newline and first.startswith('"') and first.endswith('"'):
            title, text = first.strip('"'), rest
    return Document(str(row.get("id", number - 1)), str(title), text)
