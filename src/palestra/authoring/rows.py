"""Rows of a data set with a hash of their content, and the folder of data sets on this machine."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["Rows", "data_folder", "hashed"]


@dataclass(frozen=True)
class Rows:
    """The rows of one split, with our names for the fields."""

    rows: tuple[dict[str, Any], ...]
    sha256: str
    """Hash of the content."""
    origin: str
    """Where they were read from."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def hashed(rows: Iterable[dict[str, Any]], origin: str) -> Rows:
    """Return ``rows`` with the hash of their content."""
    rows = tuple(rows)
    hasher = hashlib.sha256()
    for row in rows:
        encoded = msgspec.json.encode(row, order="deterministic", enc_hook=str)
        hasher.update(len(encoded).to_bytes(8, "little") + encoded)
    return Rows(rows, hasher.hexdigest(), origin)


def data_folder() -> Path:
    """Return the folder of data sets on this machine."""
    named = os.environ.get("PALESTRA_DATA")
    return Path(named) if named else Path.home() / ".cache" / "palestra" / "data"
