"""Poisoned samples: found, named and counted before they can reach a statistic or a loss.

One NaN in a batch destroys a run, and one sample from a wrong vocabulary or a stale policy bends it without a trace. Every
member is looked at by every check, in the order below; the first that objects names it. A poisoned member becomes ``None``, as
a failed one is, and its group is treated by the rule for partial groups (``groups.PartialGroups``). Nothing is repaired.

The checks do not trust the types: a sample may have come over a wire or out of a faulty engine. A check that cannot even read
the sample makes it ``unreadable``.
"""

import itertools
import math
import numbers
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from palestra.encoding import encode_msgpack
from palestra.training.groups import Array
from palestra.trajectory import Segment, Span, Trajectory, TrajectoryGroup

__all__ = ["Finding", "Limits", "Poison", "Quarantined", "inspect", "inspect_measured", "key_of", "quarantine"]


class Poison(StrEnum):
    """What is wrong with a sample."""

    UNREADABLE = "unreadable"

    WRONG_TASK = "wrong_task"
    WRONG_GROUP = "wrong_group"
    DUPLICATE = "duplicate"
    ALREADY_CONSUMED = "already_consumed"

    NO_TURNS = "no_turns"
    REWARD_NOT_A_NUMBER = "reward_not_a_number"
    REWARD_NAN = "reward_nan"
    REWARD_INFINITE = "reward_infinite"
    REWARD_HUGE = "reward_huge"

    NO_SEGMENTS = "no_segments"
    EMPTY_SEGMENT = "empty_segment"
    IDS_MALFORMED = "ids_malformed"
    ID_NEGATIVE = "id_negative"
    ID_OUT_OF_VOCABULARY = "id_out_of_vocabulary"
    TOO_LONG = "too_long"

    SPAN_REVERSED = "span_reversed"
    SPAN_OUT_OF_RANGE = "span_out_of_range"
    SPAN_OVERLAP = "span_overlap"
    SAMPLED_WITHOUT_CONTEXT = "sampled_without_context"
    NOTHING_SAMPLED = "nothing_sampled"

    LOGPROBS_MALFORMED = "logprobs_malformed"
    LOGPROBS_MISSING = "logprobs_missing"
    LOGPROBS_SURPLUS = "logprobs_surplus"
    LOGPROB_NAN = "logprob_nan"
    LOGPROB_POSITIVE = "logprob_positive"
    LOGPROB_INFINITE = "logprob_infinite"
    LOGPROB_IMPROBABLE = "logprob_improbable"
    LOGPROBS_ALL_ZERO = "logprobs_all_zero"

    TURN_OUT_OF_RANGE = "turn_out_of_range"
    TURN_DECREASING = "turn_decreasing"
    TURN_WITHOUT_TOKENS = "turn_without_tokens"

    VERSION_NEGATIVE = "version_negative"
    VERSION_DECREASING = "version_decreasing"
    VERSION_FUTURE = "version_future"
    VERSION_STALE = "version_stale"

    RECOMPUTED_NOT_FINITE = "recomputed_not_finite"
    SAMPLER_MISMATCH = "sampler_mismatch"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a healthy sample keeps within."""

    vocabulary: Annotated[int, msgspec.Meta(ge=1)]
    """Ids are below this."""
    context: Annotated[int, msgspec.Meta(ge=1)]
    """The longest segment the model can read. Rollouts stop there as truncated; longer means that they did not."""
    version: int = 0
    """The learner's weight version now."""
    staleness: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many versions the oldest token of an episode may lag behind."""
    reward: Annotated[float, msgspec.Meta(gt=0.0)] = 1e6
    """The largest absolute turn reward."""
    logprob: float = -100.0
    """The lowest log-probability that anything sampled can have."""
    zeros: int = 16
    """This many sampled tokens, all with log-probability exactly 0, mean that the engine did not report any."""
    mismatch: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0
    """The largest mean |log π_old − log μ| of an episode: beyond it another model, template or temperature did the sampling."""


class Finding(msgspec.Struct, frozen=True):
    """Which member was poisoned, and by what."""

    group: int
    member: int
    kind: Poison


class Quarantined(NamedTuple):
    """The members that are left, and what was wrong with the others."""

    groups: list[list[Trajectory | None]]
    """Aligned with the groups that came in; ``None`` where a member failed or was poisoned."""
    findings: tuple[Finding, ...]
    counts: dict[Poison, int]


def key_of(trajectory: Trajectory) -> bytes:
    """The name of one member of one group of one run: no two samples may share it."""
    task = trajectory.task
    origin = (trajectory.seed, trajectory.group, trajectory.member, trajectory.player)
    return encode_msgpack((task.env, task.seed, task.key, *origin))


def quarantine(groups: Sequence[TrajectoryGroup], limits: Limits, consumed: Collection[bytes] = ()) -> Quarantined:
    """Sort out the poisoned members of a batch. ``consumed`` holds the keys that earlier steps have trained on."""
    seen: set[bytes] = set()
    findings: list[Finding] = []
    kept: list[list[Trajectory | None]] = []
    for g, group in enumerate(groups):
        row: list[Trajectory | None] = []
        for m, member in enumerate(group.members):
            kind = _membership(member, group, seen, consumed) or inspect(member, limits)
            if kind is not None:
                findings.append(Finding(g, m, kind))
            row.append(None if kind is not None or member.stop.failed else member)
        kept.append(row)
    return Quarantined(kept, tuple(findings), dict(Counter(finding.kind for finding in findings)))


def inspect(trajectory: Trajectory, limits: Limits) -> Poison | None:
    """The first thing that is wrong with ``trajectory``, or ``None``. One that failed is not poisoned: it has no reward."""
    try:
        if trajectory.stop.failed:
            return None
        return next((kind for kind, objects in _CHECKS if objects(trajectory, limits)), None)
    except Exception:  # whatever it was, the sample cannot be read
        return Poison.UNREADABLE


def inspect_measured(sampled: Array, recomputed: Array, limits: Limits) -> Poison | None:
    """What the trainer's own log-probabilities of one episode's tokens say about how they were sampled."""
    if not np.isfinite(recomputed).all():
        return Poison.RECOMPUTED_NOT_FINITE
    if len(sampled) and np.abs(recomputed - sampled).mean() > limits.mismatch:
        return Poison.SAMPLER_MISMATCH
    return None


def _membership(member: Trajectory, group: TrajectoryGroup, seen: set[bytes], consumed: Collection[bytes]) -> Poison | None:
    try:
        first = group.members[0]
        if member.task != group.task:
            return Poison.WRONG_TASK
        if (member.seed, member.group, member.player) != (first.seed, first.group, first.player):
            return Poison.WRONG_GROUP
        key = key_of(member)
    except Exception:  # the same as in inspect()
        return Poison.UNREADABLE
    if key in seen:
        return Poison.DUPLICATE
    seen.add(key)
    return Poison.ALREADY_CONSUMED if key in consumed else None


# -------------------------------------------------------------------------------------------------------------- the checks

_Check = Callable[[Trajectory, Limits], bool]


def _rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.turns]


def _spans(trajectory: Trajectory) -> Iterable[tuple[Segment, Span]]:
    return ((segment, span) for segment in trajectory.segments for span in segment.spans)


def _any_segment(objects: Callable[[Segment, Limits], bool]) -> _Check:
    return lambda trajectory, limits: any(objects(segment, limits) for segment in trajectory.segments)


def _any_span(objects: Callable[[Segment, Span], bool]) -> _Check:
    return lambda trajectory, _: any(objects(segment, span) for segment, span in _spans(trajectory))


def _any_logprob(objects: Callable[[Array, Limits], bool]) -> _Check:
    return _any_segment(lambda segment, limits: objects(np.asarray(segment.logprobs, dtype=np.float64), limits))


def _malformed(array: object, kinds: str) -> bool:
    return not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds


def _sampled(segment: Segment) -> int:
    return sum(span.stop - span.start for span in segment.spans)


def _overlap(segment: Segment, _: Limits) -> bool:
    return any(after.start < before.stop for before, after in itertools.pairwise(segment.spans))


def _decreasing(values: list[int]) -> bool:
    return any(after < before for before, after in itertools.pairwise(values))


def _versions(trajectory: Trajectory) -> list[int]:
    return [span.version for _, span in _spans(trajectory) if span.stop > span.start]


def _all_zero(trajectory: Trajectory, limits: Limits) -> bool:
    every = np.concatenate([segment.logprobs for segment in trajectory.segments])
    return len(every) >= limits.zeros and not every.any()


def _turn_without_tokens(trajectory: Trajectory, _: Limits) -> bool:
    spoken = {span.turn for _, span in _spans(trajectory) if span.stop > span.start}
    return any(turn.completion.text and k not in spoken for k, turn in enumerate(trajectory.turns))


_CHECKS: tuple[tuple[Poison, _Check], ...] = (
    (Poison.NO_TURNS, lambda t, _: not t.turns),
    (Poison.REWARD_NOT_A_NUMBER, lambda t, _: not all(isinstance(r, numbers.Real) for r in _rewards(t))),
    (Poison.REWARD_NAN, lambda t, _: any(map(math.isnan, _rewards(t)))),
    (Poison.REWARD_INFINITE, lambda t, _: any(map(math.isinf, _rewards(t)))),
    (Poison.REWARD_HUGE, lambda t, limits: any(abs(r) > limits.reward for r in _rewards(t))),
    (Poison.NO_SEGMENTS, lambda t, _: not t.segments),
    (Poison.IDS_MALFORMED, _any_segment(lambda s, _: _malformed(s.ids, "iu"))),
    (Poison.EMPTY_SEGMENT, _any_segment(lambda s, _: not len(s.ids))),
    (Poison.ID_NEGATIVE, _any_segment(lambda s, _: bool((s.ids < 0).any()))),
    (Poison.ID_OUT_OF_VOCABULARY, _any_segment(lambda s, limits: bool((s.ids >= limits.vocabulary).any()))),
    (Poison.TOO_LONG, _any_segment(lambda s, limits: len(s.ids) > limits.context)),
    (Poison.SPAN_REVERSED, _any_span(lambda _, span: span.stop < span.start)),
    (Poison.SPAN_OUT_OF_RANGE, _any_span(lambda s, span: span.start < 0 or span.stop > len(s.ids))),
    (Poison.SPAN_OVERLAP, _any_segment(_overlap)),
    (Poison.SAMPLED_WITHOUT_CONTEXT, _any_span(lambda _, span: span.start == 0 < span.stop)),
    (Poison.NOTHING_SAMPLED, lambda t, _: not any(map(_sampled, t.segments))),
    (Poison.LOGPROBS_MALFORMED, _any_segment(lambda s, _: _malformed(s.logprobs, "f"))),
    (Poison.LOGPROBS_MISSING, _any_segment(lambda s, _: len(s.logprobs) < _sampled(s))),
    (Poison.LOGPROBS_SURPLUS, _any_segment(lambda s, _: len(s.logprobs) > _sampled(s))),
    (Poison.LOGPROB_NAN, _any_logprob(lambda values, _: bool(np.isnan(values).any()))),
    # Rounding can push the log of a probability of one just above zero.
    (Poison.LOGPROB_POSITIVE, _any_logprob(lambda values, _: bool((values > 1e-4).any()))),
    (Poison.LOGPROB_INFINITE, _any_logprob(lambda values, _: bool(np.isinf(values).any()))),
    (Poison.LOGPROB_IMPROBABLE, _any_logprob(lambda values, limits: bool((values < limits.logprob).any()))),
    (Poison.LOGPROBS_ALL_ZERO, _all_zero),
    (Poison.TURN_OUT_OF_RANGE, lambda t, _: any(not 0 <= span.turn < len(t.turns) for _, span in _spans(t))),
    (Poison.TURN_DECREASING, lambda t, _: _decreasing([span.turn for _, span in _spans(t)])),
    (Poison.TURN_WITHOUT_TOKENS, _turn_without_tokens),
    (Poison.VERSION_NEGATIVE, lambda t, _: any(version < 0 for version in _versions(t))),
    (Poison.VERSION_DECREASING, lambda t, _: _decreasing(_versions(t))),
    (Poison.VERSION_FUTURE, lambda t, limits: max(_versions(t)) > limits.version),
    (Poison.VERSION_STALE, lambda t, limits: limits.version - min(_versions(t)) > limits.staleness),
)
