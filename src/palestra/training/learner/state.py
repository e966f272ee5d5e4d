"""A learner's state on the disk: tensors as safetensors, their description as JSON. Nothing is pickled.

::

    learner-00000.safetensors   rank 0's rows of every tensor, and its generator
    learner-00000.json          a ``RankState``: what is in the file, and the file's size and hash

A rank saves the rows that it holds. ``StateReader`` joins the rows of any number of ranks, so a run may resume with another
number of ranks. Only rank 0 saves tensors that are not sharded.

This module writes the files, not the ``safetensors`` package. So a file is hashed while it is written, only one tensor at a
time is copied to the CPU, and the interpreter's lock is free while bytes are hashed and written. ``safetensors`` reads the
files.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor

from palestra.durable import Inside, sync_file, write_whole
from palestra.durable.checkpoint import FileEntry
from palestra.errors import SchemaError, UsageError

__all__ = ["GENERATOR", "StateReader", "TensorRows", "local_rows", "rows_of", "write_state"]

GENERATOR = "generator"
_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8"}
_CHUNK = 1 << 24
_T = TypeVar("_T")


class RowRange(msgspec.Struct, frozen=True):
    """The part of a tensor that one rank holds."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    """The first row; 0 for a tensor that is not sharded."""


class RankState(msgspec.Struct, frozen=True):
    """What one rank saved."""

    updates: int
    ranks: int
    file: FileEntry
    tensors: dict[str, RowRange]


class TensorRows(NamedTuple):
    """The rows of a tensor that this rank holds."""

    rows: Tensor
    start: int
    """The number of the first of them."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    sharded: bool
    """Whether other ranks hold other rows."""


def rows_of(tensor: Tensor) -> TensorRows:
    """Return the rows of ``tensor`` that this rank holds."""
    return TensorRows(*local_rows(tensor), tuple(tensor.shape), isinstance(tensor, DTensor))


def local_rows(tensor: Tensor) -> tuple[Tensor, int]:
    """The rows of ``tensor`` that this rank holds, and the number of the first."""
    tensor = tensor.detach()
    if not isinstance(tensor, DTensor):
        return tensor, 0
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    # FSDP shards the first dimension as torch.chunk does: equal parts, rounded up, the last ones smaller or empty.
    part = -(-rows // mesh.size())
    return tensor.to_local(), min(mesh.get_local_rank() * part, rows)


def write_state(folder: Path, rank: int, ranks: int, updates: int, tensors: Mapping[str, TensorRows]) -> None:
    """Write this rank's part of ``tensors`` into ``folder``. On return it is on the disk."""
    held = {name: rows for name, rows in tensors.items() if rank == 0 or rows.sharded or name == GENERATOR}
    path = folder / f"learner-{rank:05d}.safetensors"
    entry = _write_safetensors(path, {name: rows.rows for name, rows in held.items()})
    told = {name: RowRange(rows.shape, rows.start) for name, rows in held.items()}
    body = msgspec.json.encode(RankState(updates, ranks, entry, told), order="deterministic")
    write_whole(path.with_suffix(".json"), body)


def _write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write and hash at once. The format: the header's length in 8 bytes, the header in JSON, the tensors one after another."""
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    told = msgspec.json.encode(header)
    told += b" " * (-len(told) % 8)
    hasher, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for piece in _pieces(len(told).to_bytes(8, "little") + told, tensors.values()):
            hasher.update(piece)
            size += file.write(piece)
    sync_file(path)
    return FileEntry(size, hasher.hexdigest())


def _pieces(header: bytes, tensors: Iterable[Tensor]) -> Iterator[memoryview]:
    yield memoryview(header)
    for tensor in tensors:
        data: Any = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for start in range(0, len(data), _CHUNK):
            yield memoryview(data[start : start + _CHUNK])


class StateReader:
    """What all ranks saved in a folder. Raises ``SchemaError`` for anything that is not such a state."""

    def __init__(self, folder: Path) -> None:
        self._folder = Inside(folder)
        first = self._read(0)
        self._ranks = [first, *(self._read(rank) for rank in range(1, first.ranks))]

    @property
    def updates(self) -> int:
        """How many updates had been made."""
        return self._ranks[0].updates

    @property
    def files(self) -> dict[str, FileEntry]:
        """The hashes of the tensors' files, as they were written."""
        return {self._name(rank): state.file for rank, state in enumerate(self._ranks)}

    def names(self) -> set[str]:
        """Every tensor that was saved."""
        return {name for state in self._ranks for name in state.tensors}

    def fill(self, name: str, into: TensorRows) -> None:
        """Copy what was saved as ``name`` into the rows that this rank holds."""
        filled = 0
        for rank, state in enumerate(self._ranks):
            if name not in state.tensors:
                continue
            saved = state.tensors[name]
            if saved.shape != into.shape:
                raise SchemaError(f"{name} has shape {list(saved.shape)} in the checkpoint and {list(into.shape)} here")
            filled += self._copy(rank, name, saved.start, into.rows, into.start)
        if filled != (len(into.rows) if into.rows.dim() else 1):
            raise SchemaError(f"{name} is incomplete in {self._folder}")

    def own(self, name: str, rank: int) -> Tensor | None:
        """What ``rank`` alone saved as ``name``; ``None`` if there was no such rank."""
        if rank >= len(self._ranks) or name not in self._ranks[rank].tensors:
            return None
        saved: Tensor = self._opened(rank, lambda file: file.get_tensor(name))
        return saved

    def _copy(self, rank: int, name: str, start: int, rows: Tensor, first: int) -> int:
        """Copy the rows that ``rank`` saved and that are among ``rows``; how many."""

        def copy(file: Any) -> int:
            if not rows.dim():
                rows.copy_(file.get_tensor(name))
                return 1
            saved = file.get_slice(name)
            low, high = max(first, start), min(first + len(rows), start + int(saved.get_shape()[0]))
            if high > low:
                rows[low - first : high - first].copy_(saved[low - start : high - start])
            return max(high - low, 0)

        with torch.no_grad():
            return self._opened(rank, copy)

    def _opened(self, rank: int, use: Callable[[Any], _T]) -> _T:
        path = self._folder / self._name(rank)
        try:
            with safe_open(path.checked_file(), framework="pt") as file:
                return use(file)
        except (SafetensorError, OSError, RuntimeError, IndexError, ValueError) as error:  # UsageError is a ValueError
            raise SchemaError(f"{path} cannot be read: {error}") from error

    def _read(self, rank: int) -> RankState:
        path = self._folder / self._name(rank).replace(".safetensors", ".json")
        try:
            return msgspec.json.decode(path.read_bytes(), type=RankState)
        except (OSError, UsageError, msgspec.MsgspecError) as error:
            raise SchemaError(f"{path} cannot be read: {error}") from error

    @staticmethod
    def _name(rank: int) -> str:
        return f"learner-{rank:05d}.safetensors"
