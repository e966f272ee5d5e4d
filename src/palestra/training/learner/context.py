"""Context parallelism (Ulysses): the ranks of a group divide the positions of a micro-batch, and long episodes fit.

Everything in a decoder but attention treats positions one by one, so each rank computes its part of every row. Attention needs
whole rows, but treats heads one by one. Before it, the ranks of a group exchange queries, keys and values (all-to-all), so that
each rank has some heads of all positions; after it, they exchange the results back. Keys and values that have fewer heads than
there are ranks are repeated first.

Rows are filled up on the right, so every rank has equally many positions. Causal attention lets no token see what is on its
right, so neither this filling nor that of padded rows needs a mask.

Each rank computes the log-probabilities of the tokens that its own positions predict. The ranks then gather these few numbers,
and each computes the whole loss of the micro-batch. The gradient of the loss goes back to the rank's own tokens alone, so the
gradients of all ranks still ADD UP to that of the batch, as they do without context parallelism.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from palestra.errors import Unsupported, UsageError
from palestra.training.learner.batch import Index, MicroBatch

__all__ = ["ContextGroup", "RankPart", "check_groups", "context_group", "part_of"]


class ContextGroup(NamedTuple):
    """The ranks that divide the positions of a micro-batch."""

    size: int
    rank: int
    """The place of this process in the group."""
    group: Any = None
    """The process group; ``None`` for a plan, in which nothing is sent."""

    def with_whole_rows(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Exchange (rows, heads, own positions, width) for (rows, own heads, positions, width)."""
        heads, groups = query.shape[1], key.shape[1]
        repeats = math.lcm(groups, self.size) // groups
        if heads % self.size:
            raise Unsupported(
                f"learner.context_parallel = {self.size} divides the heads of attention among ranks, and the model has "
                f"{heads}: choose a number that divides them"
            )
        key, value = (some.repeat_interleave(repeats, dim=1) if repeats > 1 else some for some in (key, value))
        return tuple(_exchanged(some, self, 1, 2) for some in (query, key, value))

    def with_own_positions(self, result: Tensor) -> Tensor:
        """Exchange (rows, positions, own heads, width) for (rows, own positions, heads, width)."""
        return _exchanged(result, self, 1, 2)

    def own_heads(self, numbers: Tensor) -> Tensor:
        """The part of one number per head that belongs to the heads of this rank."""
        return numbers.chunk(self.size)[self.rank]

    def gathered(self, numbers: Tensor, places: Tensor, count: int) -> Tensor:
        """All ``count`` numbers of the group, of which this rank has ``numbers`` at ``places``."""
        gathered: Tensor = _Gathered.apply(numbers, places, count, self)  # type: ignore[no-untyped-call,unused-ignore]
        return gathered

    def largest(self, number: Tensor) -> float:
        """The largest ``number`` of all ranks of the group."""
        largest = number.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.group)
        return float(largest)


def check_groups(size: int, ranks: int) -> None:
    """Raise ``UsageError`` if ``ranks`` cannot be divided into groups of ``size``."""
    if ranks % size:
        raise UsageError(
            f"learner.context_parallel = {size} needs groups of {size} ranks, but the learner has {ranks}: set --ranks to a "
            f"multiple of {size}, with --cluster local on one machine"
        )


def context_group(size: int) -> ContextGroup | None:
    """Form groups of ``size`` neighboring ranks and return that of this process. All ranks must call it."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    check_groups(size, ranks)
    if size == 1:
        return None
    groups = [dist.new_group(list(range(first, first + size))) for first in range(0, ranks, size)]
    rank = dist.get_rank()
    return ContextGroup(size, rank % size, groups[rank // size])


class RankPart(NamedTuple):
    """Which of the micro-batch's tokens and segments a rank predicts and ends."""

    tokens: Index
    """The places of its tokens among those of the micro-batch."""
    token_count: int
    """Tokens of the micro-batch."""
    segments: Index
    """The places of the segments that end in this part."""
    segment_count: int
    """Segments of the micro-batch."""


def part_of(micro: MicroBatch, context: ContextGroup) -> tuple[MicroBatch, RankPart]:
    """The positions of ``micro`` that this rank computes. Their flat indices count inside this part."""
    length = micro.input_ids.shape[1]
    width = -(-length // context.size)
    first = context.rank * width

    def columns(rows: Index) -> Index:
        filled = np.pad(rows, ((0, 0), (0, width * context.size - length)))
        return np.ascontiguousarray(filled[:, first : first + width])

    def own(places: Index) -> tuple[Index, Index]:
        """Which of the flat indices are in this part, and what they are there."""
        row, column = np.divmod(places, length)
        chosen = np.flatnonzero((column >= first) & (column < first + width))
        return chosen, row[chosen] * width + column[chosen] - first

    tokens, predictors = own(micro.predictors)
    segments, ends = own(micro.ends)
    part = micro._replace(
        input_ids=columns(micro.input_ids),
        position_ids=columns(micro.position_ids),
        attention_mask=None,
        bounds=(*(micro.bounds or (0, 0))[:-1], width * context.size),
        predictors=predictors,
        targets=micro.targets[tokens],
        ends=ends,
        prefix=0,
    )
    return part, RankPart(tokens, len(micro.predictors), segments, len(micro.ends))


def _exchanged(some: Tensor, context: ContextGroup, divided: int, joined: int) -> Tensor:
    exchanged: Tensor = _Exchange.apply(some, context, divided, joined)  # type: ignore[no-untyped-call,unused-ignore]
    return exchanged


class _Exchange(torch.autograd.Function):
    """All-to-all: each rank gives away the others' parts of one dimension, and gets their parts of another."""

    @staticmethod
    def forward(ctx: Any, some: Tensor, context: ContextGroup, divided: int, joined: int) -> Tensor:
        ctx.way = context, joined, divided
        return _all_to_all(some, context, divided, joined)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradient, *ctx.way), None, None, None


def _all_to_all(some: Tensor, context: ContextGroup, divided: int, joined: int) -> Tensor:
    sent = torch.stack(some.chunk(context.size, dim=divided))
    received = torch.empty_like(sent)
    if context.group is not None:
        dist.all_to_all_single(received, sent, group=context.group)
    return torch.cat(received.unbind(), dim=joined)


class _Gathered(torch.autograd.Function):
    """The numbers of all ranks. Each rank uses all of them, so the gradient of its own ones is not added over ranks."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, places: Tensor, count: int, context: ContextGroup) -> Tensor:
        ctx.save_for_backward(places)
        # One rank fills each entry and the others leave it 0, so the sum is exact.
        gathered = numbers.new_zeros(count).index_copy(0, places, numbers)
        if context.group is not None:
            dist.all_reduce(gathered, group=context.group)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        (places,) = ctx.saved_tensors
        return gradient[places], None, None, None
