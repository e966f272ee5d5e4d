"""Rows of a data set, from any of its sources, and a hash of their content.

The data folder holds ``NAME/SPLIT.jsonl`` (or ``.parquet``, ``.csv``), written by ``palestra prefetch`` or by hand, under our
field names or the set's own. The hash covers the rows in order, after the fields are mapped: the same questions have the same
hash in every file format.
"""

import codecs
import csv
import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from palestra.authoring.rows import Rows, data_folder, hashed
from palestra.durable import replacing
from palestra.errors import MissingData, MissingExtra, SchemaError, UsageError
from palestra.foundation.installation import how_to_install
from palestra.suite.data.field_map import DataSet, data_set

__all__ = ["FORMATS", "load", "numbered_rows", "prefetch"]

FORMATS = (".jsonl", ".csv", ".parquet")
"""Endings of the files that can be read."""


def load(name: str, split: str = "") -> Rows:
    """Return the rows of ``split`` (the default one if empty) of the data set ``name``.

    Raises:
        MissingData: The rows are not on this machine; the message says how to get them.
    """
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
        return _rows(known, numbered_rows(found), str(found))
    if known.package:
        return _rows(known, enumerate(_packaged(known), 1), known.package)
    cached = _cached(known, split)
    if cached is not None:
        return _rows(known, enumerate(cached, 1), known.source)
    raise MissingData(_what_to_do(known, split, folder))


def _what_to_do(known: DataSet, split: str, folder: Path) -> str:
    by_hand = f"put {split}.jsonl (or .parquet, .csv) with the fields {', '.join(known.fields)} into {folder / known.name}"
    if not known.source:
        return f"the data of {known.name} ({split}) is not on this machine: {by_hand}"
    fetch = f"run `palestra prefetch {known.name}` (it needs a network)"
    return f"the data of {known.name} ({split}) is not on this machine: {fetch}, or {by_hand}"


def _rows(known: DataSet, raw: Iterable[tuple[int, Mapping[str, Any]]], origin: str) -> Rows:
    rows: list[dict[str, Any]] = []
    for line, row in raw:
        try:
            rows.append(known.mapped(row))
        except SchemaError as error:
            raise SchemaError(f"{origin}:{line}: {error}") from None
    if not rows:
        raise MissingData(f"{origin} holds no rows of {known.name}")
    return hashed(rows, origin)


# -------------------------------------------------------------------------------------------------------------- sources


def _file(known: DataSet, split: str, folder: Path) -> Path | None:
    for stem in (split, known.splits[split]):
        for suffix in FORMATS:
            path = folder / known.name / f"{stem}{suffix}"
            if path.is_file():
                return path
    return None


def numbered_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a JSONL, CSV or Parquet file with the number of their line, or of the row in a Parquet file.

    Raises:
        SchemaError: A line cannot be read.
    """
    if path.suffix == ".jsonl":
        yield from _jsonl(path)
    elif path.suffix == ".csv":
        yield from _csv(path)
    elif path.suffix == ".parquet":
        yield from enumerate(_parquet(path), 1)
    else:
        raise UsageError(f"{path} is not one of {', '.join(FORMATS)}")


def _jsonl(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open("rb") as file:
        for number, read in enumerate(file, 1):
            line = read.removeprefix(codecs.BOM_UTF8) if number == 1 else read
            if not line.strip():
                continue
            try:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise SchemaError(f"{path}:{number}: the line is not a JSON object: {error}") from None


def _csv(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                if None in row:
                    raise SchemaError(f"{path}:{reader.line_num}: the row has more cells than the header has names")
                yield reader.line_num, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise SchemaError(f"{path}:{reader.line_num + 1}: the line cannot be read as CSV in UTF-8: {error}") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise MissingExtra(f"reading {path.name} needs pyarrow: {how_to_install('data')}") from None
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except ArrowInvalid as error:
        raise SchemaError(f"{path}: the file cannot be read as Parquet: {error}") from None


def _packaged(known: DataSet) -> Iterable[Mapping[str, Any]]:
    module, _, function = known.package.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)()
    except ImportError:
        raise MissingExtra(f"{known.name} comes with {module}: {how_to_install(known.extra)}") from None
    return list(found.values()) if isinstance(found, Mapping) else list(found)


def _cached(known: DataSet, split: str) -> Iterable[Mapping[str, Any]] | None:
    """Return what is in the cache of ``datasets``, read without that library, which would ask the network first."""
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
        raise MissingExtra(f"reading the cache of datasets needs pyarrow: {how_to_install('data')}") from None
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
        raise MissingExtra(f"downloading needs the datasets library: {how_to_install('data')}") from None
    try:
        found = datasets.load_dataset(
            known.source, known.config or None, split=known.splits[split], revision=known.revision or None
        )
    except Exception as error:
        raise MissingData(f"{known.source} could not be downloaded: {type(error).__name__}: {error}") from error
    target = data_folder() / name / f"{split}.jsonl"
    with replacing(target) as draft, draft.open("wb") as file:
        for row in found:
            file.write(msgspec.json.encode(known.mapped(row), enc_hook=str) + b"\n")
    return target
