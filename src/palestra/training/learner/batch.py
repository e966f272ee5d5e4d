"""Divide segments into micro-batches so that the division never changes the result. NumPy only.

A ``Batch`` holds S segments of E episodes and one flat array per property of its T sampled tokens, in the order (episode,
segment, position). Environment tokens are context and nothing else: no array here has an entry for them.

A token's share of the loss is worked out over the whole batch (``token_weights``) before it is split, so a loss is a plain sum
over micro-batches and ranks. ``plan`` decides who computes what: every rank gets the same NUMBER of micro-batches, empty ones
included, because each of them is a round of collective calls under FSDP.

Two layouts lead to the same flat tokens. ``padded`` puts one segment in a row, segments of similar length together; it suits a
CPU. ``packed`` puts all segments of a micro-batch in one row with positions that restart, and nothing is padded. Models whose
layers mix all positions of a row (convolutions, state spaces) cannot be packed: ``checks.check_packing`` refuses them at the
start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.foundation.encoding import Ints, ints
from palestra.recipes.learner import PackingConfig
from palestra.training.algorithms.groups import Array
from palestra.trajectory import Trajectory

__all__ = [
    "WORTH_SHARING",
    "Batch",
    "Index",
    "Layout",
    "MicroBatch",
    "Plan",
    "micro_batch",
    "plan",
    "token_weights",
    "value_weights",
]

Index = npt.NDArray[np.int64]
Layout = Literal["padded", "packed"]
Plan = tuple[tuple[tuple[int, ...], ...], ...]
"""Segments, by rank and micro-batch. All ranks have equally many micro-batches."""


WORTH_SHARING = 16
"""Tokens of common prefix from which on computing it apart pays."""


@dataclass(frozen=True, eq=False)
class Batch:
    """The sampled tokens of a set of episodes, in their context."""

    ids: tuple[Ints, ...]
    """The segments (S)."""
    owners: Index
    """The episode of each segment (S), not decreasing."""
    count: int
    """The number of episodes (E)."""
    segments: Index
    """The segment of each sampled token (T)."""
    positions: Index
    """The index of the token in its segment (T). The position before it predicts the token."""
    turns: Index
    """The turn of its episode that sampled the token (T)."""
    sampled: Array
    """Log-probability at sampling time (T)."""
    old: Array | None = None
    """Log-probability under the trainer's policy before the update (T)."""
    reference: Array | None = None
    """Log-probability under the reference policy (T)."""
    advantages: Array | None = None
    """(T)."""
    values: Array | None = None
    """The critic's values before the update (T)."""
    targets: Array | None = None
    """Value targets of the critic (T); NaN where there is none."""

    def __post_init__(self) -> None:
        total = len(self.positions)
        for name in ("segments", "turns", "sampled", "old", "reference", "advantages", "values", "targets"):
            array = getattr(self, name)
            if array is not None and len(array) != total:
                raise ValueError(f"{total} sampled tokens but {len(array)} {name}")
        if total and self.positions.min() < 1:
            raise ValueError("a sampled token at position 0 has nothing that predicts it")

    @classmethod
    def of(cls, trajectories: Sequence[Trajectory]) -> "Batch":
        """Return the batch of all segments of ``trajectories``. Each trajectory is one episode of it, in this order."""
        segments = [(e, segment) for e, trajectory in enumerate(trajectories) for segment in trajectory.segments]
        positions = [np.flatnonzero(segment.mask) for _, segment in segments]
        return cls(
            ids=tuple(segment.ids for _, segment in segments),
            owners=np.array([e for e, _ in segments], dtype=np.int64),
            count=len(trajectories),
            segments=np.repeat(np.arange(len(segments)), [len(p) for p in positions]).astype(np.int64),
            positions=np.concatenate([np.empty(0, dtype=np.int64), *positions]),
            turns=np.concatenate([np.empty(0, dtype=np.int64), *(segment.turns[segment.mask] for _, segment in segments)]),
            sampled=np.concatenate([np.empty(0), *(segment.logprobs.astype(np.float64) for _, segment in segments)]),
        )

    @cached_property
    def offsets(self) -> Index:
        """The index of each segment's first token in the flat arrays (S + 1)."""
        return np.searchsorted(self.segments, np.arange(len(self.ids) + 1)).astype(np.int64)

    @property
    def episodes(self) -> Index:
        """The episode of each sampled token (T)."""
        return self.owners[self.segments]

    def tokens_of(self, episode: int) -> Index:
        """Return the places in the flat arrays of the tokens of ``episode``, turn by turn.

        The flat arrays are ordered by segment. The turns of two segments may alternate, and advantages follow the turns. Inside
        a turn the order is that of the segments.
        """
        first, last = self.offsets[np.searchsorted(self.owners, [episode, episode + 1])]
        order: Index = first + np.argsort(self.turns[first:last], kind="stable")
        return order

    def last_segment_of(self, episode: int) -> int:
        """Return the segment that holds the last sampled token of the episode; its last segment if nothing was sampled."""
        tokens = self.tokens_of(episode)
        return int(self.segments[tokens[-1]]) if len(tokens) else int(np.searchsorted(self.owners, episode + 1)) - 1

    def tokens_in(self, segments: Sequence[int]) -> tuple[Index, Index]:
        """The tokens of these segments, and for each of them its segment's place in ``segments``."""
        ranges = [np.arange(self.offsets[s], self.offsets[s + 1]) for s in segments]
        local = np.repeat(np.arange(len(ranges)), [len(r) for r in ranges])
        return np.concatenate([np.empty(0, dtype=np.int64), *ranges]), local.astype(np.int64)

    def take(self, episodes: Sequence[int]) -> "Batch":
        """Return a batch of these episodes, in this order, with all arrays."""
        owned = [np.arange(*np.searchsorted(self.owners, [e, e + 1])) for e in episodes]
        chosen = np.concatenate([np.empty(0, dtype=np.int64), *owned])
        tokens, local = self.tokens_in(chosen.tolist())
        optional = {name: getattr(self, name) for name in ("old", "reference", "advantages", "values", "targets")}
        return replace(
            self,
            ids=tuple(self.ids[s] for s in chosen),
            owners=np.repeat(np.arange(len(episodes)), [len(o) for o in owned]).astype(np.int64),
            count=len(episodes),
            segments=local,
            positions=self.positions[tokens],
            turns=self.turns[tokens],
            sampled=self.sampled[tokens],
            **{name: None if array is None else array[tokens] for name, array in optional.items()},
        )

    def split(self, count: int, rng: np.random.Generator) -> list["Batch"]:
        """Divide the episodes at random into ``count`` mini-batches, or fewer if there are fewer episodes."""
        order = rng.permutation(self.count)
        return [self.take(part.tolist()) for part in np.array_split(order, count) if len(part)]


def token_weights(batch: Batch, aggregation: Literal["token_mean", "sequence_mean", "constant"], constant: int) -> Array:
    """Return each sampled token's weight in the global loss (T). An episode counts once, however many segments it has."""
    episodes = batch.episodes
    tokens_of_episode = np.bincount(episodes, minlength=batch.count)
    present = int((tokens_of_episode > 0).sum())
    if aggregation == "token_mean":
        return np.full(len(episodes), 1.0 / max(len(episodes), 1))
    if aggregation == "sequence_mean":
        return 1.0 / (present * tokens_of_episode[episodes].astype(np.float64))
    return np.full(len(episodes), 1.0 / (max(present, 1) * constant))


def value_weights(batch: Batch) -> Array:
    """Return each token's weight in the critic's loss (T): 1 over the number of targets."""
    targets = 0 if batch.targets is None else int((~np.isnan(batch.targets)).sum())
    return np.full(len(batch.positions), 1.0 / max(targets, 1))


# ----------------------------------------------------------------------------------------------------------------- packing


def plan(batch: Batch, ranks: int, config: PackingConfig) -> Plan:
    """Distribute the segments over ``ranks``, in micro-batches of balanced size."""
    lengths = [len(ids) for ids in batch.ids]
    bins = _similar(lengths, ranks, config) if config.layout == "padded" else _filled(lengths, ranks, config)
    bins.sort(key=lambda members: _cost(members, lengths, config.layout), reverse=True)
    bins += [[]] * (-len(bins) % ranks if bins else ranks)
    shares: list[list[tuple[int, ...]]] = [[] for _ in range(ranks)]
    # In alternating order, so that no rank always gets the largest of each round.
    for start in range(0, len(bins), ranks):
        order = range(ranks) if start // ranks % 2 == 0 else reversed(range(ranks))
        for rank, members in zip(order, bins[start : start + ranks], strict=True):
            shares[rank].append(tuple(members))
    return tuple(tuple(share) for share in shares)


def _cost(members: Sequence[int], lengths: Sequence[int], layout: Layout) -> int:
    sizes = [lengths[s] for s in members]
    return len(sizes) * max(sizes, default=0) if layout == "padded" else sum(sizes)


def _similar(lengths: Sequence[int], ranks: int, config: PackingConfig) -> list[list[int]]:
    """Group segments of similar length, then halve the most expensive groups until the ranks share them evenly."""
    bins: list[list[int]] = []
    for s in sorted(range(len(lengths)), key=lambda s: lengths[s], reverse=True):
        if bins and lengths[bins[-1][0]] * (len(bins[-1]) + 1) <= config.positions:
            bins[-1].append(s)
        else:
            bins.append([s])
    while len(bins) % ranks and any(len(members) > 1 for members in bins):
        costliest = max((members for members in bins if len(members) > 1), key=lambda m: _cost(m, lengths, "padded"))
        half = len(costliest) // 2
        bins.append(costliest[half:])
        del costliest[half:]
    return bins


def _filled(lengths: Sequence[int], ranks: int, config: PackingConfig) -> list[list[int]]:
    """Put the longest first, each into the emptiest bin. Add bins until all are within bounds."""
    order = sorted(range(len(lengths)), key=lambda s: lengths[s], reverse=True)
    count = max(1, -(-sum(lengths) // config.positions))
    while True:
        count += -count % ranks
        bins: list[list[int]] = [[] for _ in range(count)]
        loads = [0] * count
        for s in order:
            lightest = loads.index(min(loads))
            bins[lightest].append(s)
            loads[lightest] += lengths[s]
        if all(load <= config.positions or len(members) == 1 for load, members in zip(loads, bins, strict=True)):
            return [members for members in bins if members]
        count += 1


class MicroBatch(NamedTuple):
    """One forward pass: R rows of L positions that hold some segments, and the places of their sampled tokens."""

    input_ids: Index
    """(R, L)."""
    position_ids: Index
    """(R, L); they restart with every segment."""
    attention_mask: Index | None
    """(R, L), 1 where there is a token; ``None`` for packed rows, whose bounds and positions tell the segments apart."""
    bounds: tuple[int, ...] | None
    """Where each segment of a packed row begins, and the end of the last; ``None`` for padded rows."""
    predictors: Index
    """The flat index (row · L + column) of the position that predicts each sampled token: the one BEFORE it."""
    targets: Index
    """The sampled ids."""
    tokens: Index
    """The indices of these tokens among the batch's T tokens."""
    segments: Index
    """The segment of each of these tokens, counted inside this micro-batch."""
    chosen: tuple[int, ...]
    """The indices of these segments in the batch."""
    ends: Index
    """The flat index of the last token of each segment. In an episode's last segment it is the state after the last turn."""
    prefix: int
    """How many leading tokens all rows have in common and predict nothing; 0 if computing them apart would not pay."""


def micro_batch(batch: Batch, chosen: Sequence[int], layout: Layout) -> MicroBatch:
    """Lay out some segments. Without any segment the result is a forward pass of one token without targets."""
    sequences = [batch.ids[s] for s in chosen] or [ints([0])]
    lengths = np.array([len(ids) for ids in sequences])
    if layout == "padded":
        starts = np.arange(len(sequences)) * lengths.max()
        shape = (len(sequences), int(lengths.max()))
    else:
        starts = np.cumsum(lengths) - lengths
        shape = (1, int(lengths.sum()))
    input_ids, position_ids, mask = (np.zeros(shape[0] * shape[1], dtype=np.int64) for _ in range(3))
    for start, ids in zip(starts, sequences, strict=True):
        positions = slice(start, start + len(ids))
        input_ids[positions], position_ids[positions], mask[positions] = ids, np.arange(len(ids)), 1
    tokens, local = batch.tokens_in(chosen)
    predictors = starts[local] + batch.positions[tokens] - 1
    ends = (starts + lengths - 1)[: len(chosen)]
    return MicroBatch(
        input_ids=input_ids.reshape(shape),
        position_ids=position_ids.reshape(shape),
        attention_mask=mask.reshape(shape) if layout == "padded" else None,
        bounds=None if layout == "padded" else (0, *np.cumsum(lengths).tolist()),
        predictors=predictors,
        targets=input_ids[predictors + 1],
        tokens=tokens,
        segments=local,
        chosen=tuple(chosen),
        ends=ends,
        prefix=_common_prefix(sequences, np.concatenate([predictors, ends]) % shape[1]) if layout == "padded" else 0,
    )


def _common_prefix(rows: Sequence[Ints], asked: Index) -> int:
    """How many leading tokens ``rows`` have in common, before the first column that is ``asked`` about."""
    if len(rows) < 2:
        return 0
    shortest = min(len(row) for row in rows)
    alike = np.all([row[:shortest] == rows[0][:shortest] for row in rows], axis=0)
    common = min(int(alike.cumprod().sum()), int(asked.min()))
    return common if common >= WORTH_SHARING else 0
