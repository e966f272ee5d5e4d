"""The key-value cache of the hf engine: one row per context, all rows of a layer in one tensor.

Active rows come first, so that a decoding step reads ``keys[:n]`` in place: no gathering, padding or concatenation per step.
A row keeps its keys between the turns of an episode. The last column belongs to no context; padding is written there.

A Hugging Face model uses the arena as its cache: it calls ``update``.

Shapes: R rows, H key-value heads, C columns (positions), D head size, B rows of this pass, T new tokens.
"""

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from palestra.core import EngineSession
from palestra.foundation.encoding import Ints

__all__ = ["Arena", "Pass", "Row", "common_prefix"]


class Row:
    """One context: its ids, and how many of them have keys and values in the arena."""

    __slots__ = ("busy", "cached", "ids", "index", "owner", "used")

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids = array("i")
        self.cached = 0
        self.busy = False
        self.used = 0
        """The pass in which it was last used."""
        self.owner: Callable[[], EngineSession | None] = lambda: None
        """A weak reference to the session that may continue it."""


class Pass(NamedTuple):
    """The inputs of one forward pass over the rows ``first`` to ``last``."""

    input_ids_BT: torch.Tensor
    position_ids_BT: torch.Tensor
    mask_B1TC: torch.Tensor


class Arena:
    """Rows of keys and values that grow with their contexts."""

    def __init__(self, rows: int) -> None:
        self.rows = [Row(index) for index in range(rows)]
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._columns = 0
        self._span = slice(0, 0)
        self._width = 0
        self._write: tuple[torch.Tensor, torch.Tensor] | None = None

    # --------------------------------------------------------------------------------------------------- what a model calls

    def update(self, keys_BHTD: torch.Tensor, values_BHTD: torch.Tensor, layer: int, *_: Any) -> Any:
        """Store the new keys and values of one layer; return all that the rows of this pass may attend to."""
        if layer == len(self._keys):
            self._add_layer(keys_BHTD, values_BHTD)
        keys, values = self._keys[layer], self._values[layer]
        assert self._write is not None
        rows, columns = self._write
        keys[rows, :, columns] = keys_BHTD.transpose(1, 2)
        values[rows, :, columns] = values_BHTD.transpose(1, 2)
        return keys[self._span, :, : self._width], values[self._span, :, : self._width]

    def get_seq_length(self, layer: int = 0) -> int:
        """Some models call this. Positions and masks are passed explicitly, so the value does not matter."""
        return self._width

    def _add_layer(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        for kept, new in ((self._keys, keys), (self._values, values)):
            shape = (len(self.rows), new.shape[1], self._columns, new.shape[3])
            kept.append(torch.zeros(shape, dtype=new.dtype, device=new.device))

    # -------------------------------------------------------------------------------------------------- what the engine calls

    def begin(self, first: int, tokens: list[list[int]], device: Any) -> Pass:
        """Prepare a pass that appends ``tokens`` to the rows from ``first`` on. Shorter lists are padded on the left."""
        rows = self.rows[first : first + len(tokens)]
        starts = np.array([row.cached for row in rows])
        counts = np.array([len(new) for new in tokens])
        most = int(counts.max())
        self._width = int((starts + counts).max())
        self._reserve(self._width + 1)
        offsets_BT = np.arange(most)[None, :] - (most - counts)[:, None]
        real_BT = offsets_BT >= 0
        positions_BT = np.where(real_BT, starts[:, None] + offsets_BT, 0)
        ids_BT = np.zeros((len(rows), most), dtype=np.int64)
        for line, new in zip(ids_BT, tokens, strict=True):
            line[most - len(new) :] = new
        columns_BT = np.where(real_BT, positions_BT, self._columns - 1)
        rows_B1 = np.arange(first, first + len(rows))[:, None]
        self._span = slice(first, first + len(rows))
        self._write = (torch.as_tensor(rows_B1, device=device), torch.as_tensor(columns_BT, device=device))
        positions = torch.as_tensor(positions_BT, device=device)
        mask = torch.arange(self._width, device=device)[None, None, None, :] <= positions[:, None, :, None]
        return Pass(torch.as_tensor(ids_BT, device=device), positions, mask)

    def advance(self, first: int, tokens: list[list[int]]) -> None:
        """Count what the finished pass wrote as cached."""
        for row, new in zip(self.rows[first : first + len(tokens)], tokens, strict=True):
            row.cached += len(new)

    def swap(self, a: int, b: int) -> None:
        """Exchange two rows."""
        if a == b:
            return
        length = max(self.rows[a].cached, self.rows[b].cached)
        for tensor in (*self._keys, *self._values) if length else ():
            kept = tensor[a, :, :length].clone()
            tensor[a, :, :length] = tensor[b, :, :length]
            tensor[b, :, :length] = kept
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
        self.rows[a].index, self.rows[b].index = a, b

    def copy(self, source: Row, target: Row, length: int) -> None:
        """Copy the first ``length`` keys and values of ``source`` to ``target``."""
        for tensor in (*self._keys, *self._values):
            tensor[target.index, :, :length] = tensor[source.index, :, :length]
        target.ids, target.cached = source.ids[:length], length

    def forget(self) -> None:
        """Invalidate everything that is stored, because the weights have changed."""
        for row in self.rows:
            row.cached = 0

    def _reserve(self, columns: int) -> None:
        if columns <= self._columns:
            return
        grown = max(columns, min(2 * self._columns, self._columns + 4096), 128)
        for tensors in (self._keys, self._values):
            for layer, old in enumerate(tensors):
                new = torch.zeros((*old.shape[:2], grown, old.shape[3]), dtype=old.dtype, device=old.device)
                new[:, :, : self._columns] = old
                tensors[layer] = new
        self._columns = grown


def common_prefix(row: Row, ids: Ints) -> int:
    """Return how many leading ``ids`` have their keys and values in ``row``."""
    most = min(row.cached, len(ids))
    if not most:
        return 0
    differ = np.frombuffer(row.ids, dtype=np.int32, count=most) != ids[:most]
    first = int(differ.argmax())
    return first if differ[first] else most
