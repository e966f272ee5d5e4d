"""Text to search: Debian's dictionaries, read when they are needed, never shipped."""

import gzip
from collections.abc import Iterator
from pathlib import Path

from palestra.tools.search import Document

FOLDER = Path("/usr/share/dictd")
_DIGITS = {mark: value for value, mark in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def read_dictionary(name: str) -> Iterator[Document]:
    """Every entry of a dictd dictionary: the headword as title, the entry as text."""
    with gzip.open(FOLDER / f"{name}.dict.dz") as file:
        text = file.read()
    with open(FOLDER / f"{name}.index", encoding="utf-8") as index:
        for number, line in enumerate(index):
            word, start, length = line.rstrip("\n").split("\t")[:3]
            if word.startswith("00-database"):
                continue
            begin = _number(start)
            yield Document(str(number), word, text[begin : begin + _number(length)].decode(errors="replace"))


def _number(written: str) -> int:
    value = 0
    for mark in written:
        value = value * 64 + _DIGITS[mark]
    return value
