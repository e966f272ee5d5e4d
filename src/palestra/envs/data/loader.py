"""Rows of a data set, from wherever they are, and a hash of what they say.

The data folder holds ``NAME/SPLIT.jsonl`` (or ``.parquet``, ``.csv``), written by ``palestra prefetch`` or by hand, under our
field names or the set's own. The hash covers the rows after the fields are mapped, in order: the same questions give the same
hash, whatever file they came from.
"""

import csv
import hashlib
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from palestra.envs.data.field_map import DataSet, data_set
from palestra.errors import MissingData, MissingExtra, SchemaError, UsageError

__all__ = ["Rows", "data_folder", "load", "prefetch", "read_rows"]

_SUFFIXES = (".jsonl", ".parquet", ".csv")


@dataclass(frozen=True)
class Rows:
    """The rows of one split, under our field names."""

    rows: tuple[dict[str, Any], ...]
    sha256: str
    """Of the content."""
    origin: str
    """Where they were read from."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


def data_folder() -> Path:
    """Where data sets are kept on this machine."""
    named = os.environ.get("PALESTRA_DATA")
    return Path(named) if named else Path.home() / ".cache" / "palestra" / "data"


def load(name: str, split: str = "") -> Rows:
    """The rows of ``split`` (the default one if empty) of the data set ``name``, or ``MissingData``."""
    known = data_set(name)
    split = split or known.default_split
    if split not in known.splits:
        raise UsageError(f'{name} has no split "{split}"; there are {", ".join(known.splits)}')
    return _load(name, split, data_folder())


@lru_cache(maxsize=64)
def _load(name: str, split: str, folder: Path) -> Rows:
    known = data_set(name)
    found = _file(known, split, folder)
    if found is not None:
        return _rows(known, read_rows(found), str(found))
    if known.package:
        return _rows(known, _packaged(known), known.package)
    cached = _cached(known, split)
    if cached is not None:
        return _rows(known, cached, known.source)
    raise MissingData(_what_to_do(known, split, folder))


def _what_to_do(known: DataSet, split: str, folder: Path) -> str:
    by_hand = f"put {split}.jsonl (or .parquet, .csv) with the fields {', '.join(known.fields)} into {folder / known.name}"
    if not known.source:
        return f"the data of {known.name} ({split}) is not here: {by_hand}"
    fetch = f"run `palestra prefetch {known.name}` where there is a network"
    return f"the data of {known.name} ({split}) is not here: {fetch}, or {by_hand}"


def _rows(known: DataSet, raw: Iterable[Mapping[str, Any]], origin: str) -> Rows:
    rows = tuple(known.mapped(row) for row in raw)
    if not rows:
        raise MissingData(f"{origin} holds no rows of {known.name}")
    hasher = hashlib.sha256()
    for row in rows:
        encoded = msgspec.json.encode(row, order="deterministic", enc_hook=str)
        hasher.update(len(encoded).to_bytes(8, "little") + encoded)
    return Rows(rows, hasher.hexdigest(), origin)


# -------------------------------------------------------------------------------------------------------------- sources


def _file(known: DataSet, split: str, folder: Path) -> Path | None:
    for stem in (split, known.splits[split]):
        for suffix in _SUFFIXES:
            path = folder / known.name / f"{stem}{suffix}"
            if path.is_file():
                return path
    return None


def read_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a JSONL, Parquet or CSV file."""
    if path.suffix == ".jsonl":
        yield from _jsonl(path)
    elif path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            yield from csv.DictReader(file)
    elif path.suffix == ".parquet":
        yield from _parquet(path)
    else:
        raise UsageError(f"{path} is not one of {', '.join(_SUFFIXES)}")


def _jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise SchemaError(f"{path}:{number} is not a JSON object: {error}") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra(f'reading {path.name} needs pyarrow: pip install "palestra[data]"') from None
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            yield from batch.to_pylist()


def _packaged(known: DataSet) -> Iterable[Mapping[str, Any]]:
    module, _, function = known.package.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)()
    except ImportError:
        raise MissingExtra(f'{known.name} comes with {module}: pip install "palestra[{known.extra}]"') from None
    return list(found.values()) if isinstance(found, Mapping) else list(found)


def _cached(known: DataSet, split: str) -> Iterable[Mapping[str, Any]] | None:
    """What the ``datasets`` library left in its cache. Its files are read without it: it would ask the network first."""
    if not known.source:
        return None
    default = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface")) / "datasets"
    cache = Path(os.environ.get("HF_DATASETS_CACHE", default)) / known.source.replace("/", "___").lower()
    theirs = known.splits[split]
    found = [*cache.glob(f"**/*-{theirs}.arrow"), *cache.glob(f"**/*-{theirs}-*-of-*.arrow")]
    if not found:
        return None
    newest = max(found, key=lambda path: path.stat().st_mtime).parent
    return _arrow(sorted(path for path in found if path.parent == newest))


def _arrow(paths: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import ipc
    except ImportError:
        raise MissingExtra('reading the cache of datasets needs pyarrow: pip install "palestra[data]"') from None
    for path in paths:
        with path.open("rb") as file, ipc.open_stream(file) as reader:
            for batch in reader:
                yield from batch.to_pylist()


# ------------------------------------------------------------------------------------------------------------- download


def prefetch(name: str, split: str) -> Path:
    """Download one split and write it into the data folder, under our field names. Returns the file."""
    known = data_set(name)
    if not known.source:
        raise UsageError(f"{name} is not on a hub: it comes with {known.package or 'files of your own'}")
    try:
        import datasets
    except ImportError:
        raise MissingExtra('downloading needs the datasets library: pip install "palestra[data]"') from None
    try:
        found = datasets.load_dataset(known.source, known.config or None, split=known.splits[split])
    except Exception as error:
        raise MissingData(f"{known.source} could not be downloaded: {type(error).__name__}: {error}") from error
    target = data_folder() / name / f"{split}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    with part.open("wb") as file:
        for row in found:
            file.write(msgspec.json.encode(known.mapped(row), enc_hook=str) + b"\n")
    part.replace(target)
    return target
