"""Find invalid samples and name what is wrong with them, before they reach a statistic or a loss.

One NaN in a batch destroys a run. A sample from a wrong vocabulary or a stale policy distorts the run without any error. Every
check below looks at every member; the first that fails names the member's problem. The step then treats an invalid member like
a failed one (``groups.PartialGroups``). Nothing is repaired.

``Segment`` refuses spans and log-probabilities that do not fit its ids. These checks look at what such a segment may still
hold, because it may come from a faulty engine or policy. If a check cannot read the sample, the sample is ``unreadable``.
"""

import hashlib
import itertools
import math
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.foundation.encoding import encode_msgpack
from palestra.training.algorithms.groups import Array
from palestra.trajectory import AgentRecord, Segment, Span, StopReason, Trajectory, TrajectoryGroup

__all__ = [
    "MISMATCH",
    "InvalidSample",
    "SampleLimits",
    "inspect",
    "inspect_measured",
    "inspect_segments",
    "quarantine",
]

MISMATCH = 2.0
"""The default of ``SampleLimits.mismatch``."""
_COINCIDENCE = math.log(1e-12)
"""Two samples whose probability is below this are not alike by chance, in any run."""


class InvalidSample(StrEnum):
    """What is wrong with a sample."""

    UNREADABLE = "unreadable"

    WRONG_TASK = "wrong_task"
    WRONG_GROUP = "wrong_group"
    DUPLICATE = "duplicate"
    COPIED = "copied"
    PRIVILEGED = "privileged"
    UNFINISHED = "unfinished"

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

    SAMPLED_WITHOUT_CONTEXT = "sampled_without_context"
    NOTHING_SAMPLED = "nothing_sampled"
    SAMPLED_TWICE = "sampled_twice"

    LOGPROBS_MALFORMED = "logprobs_malformed"
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


_MEASURED = (InvalidSample.RECOMPUTED_NOT_FINITE, InvalidSample.SAMPLER_MISMATCH)
"""What only the learner's log-probabilities reveal, the worse one first."""


class SampleLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits that a valid sample keeps."""

    vocabulary: Annotated[int, msgspec.Meta(ge=1)]
    """The size of the vocabulary: ids are smaller."""
    context: Annotated[int, msgspec.Meta(ge=1)]
    """The longest segment that the model can read. A rollout truncates the episode there."""
    version: int = 0
    """The current version of the learner's weights."""
    staleness: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many versions the oldest token of an episode may be behind."""
    reward: Annotated[float, msgspec.Meta(gt=0.0)] = 1e6
    """The largest sum of the absolute rewards of an episode's turns. So no return of an episode is larger."""
    privileged: bool = False
    """Whether the policy of the run sees the environment, as a tree search does. In any other run, a sample of a privileged
    policy comes from somewhere else."""
    logprob: float = -100.0
    """The lowest log-probability of a sampled token."""
    zeros: int = 16
    """From this number of sampled tokens on, all log-probabilities being exactly 0 means that the engine reports none."""
    mismatch: Annotated[float, msgspec.Meta(gt=0.0)] = MISMATCH
    """The largest mean |log π_old − log μ| of a segment. A larger one means another model, template or temperature, and the
    episode is invalid."""


def quarantine(groups: Sequence[TrajectoryGroup], limits: SampleLimits) -> list[list[InvalidSample | None]]:
    """Return what is wrong with every member, aligned with ``groups``; ``None`` for a valid member and for a failed one."""
    keys: set[bytes] = set()
    replies: set[bytes] = set()
    return [
        [_membership(member, group, keys) or inspect(member, limits) or _copied(member, replies) for member in group.members]
        for group in groups
    ]


def inspect(trajectory: Trajectory, limits: SampleLimits) -> InvalidSample | None:
    """Return the first thing that is wrong with ``trajectory``, or ``None``. A failed episode is not invalid."""
    try:
        if trajectory.stop.failed:
            return None
        return next((kind for kind, objects in _CHECKS if objects(trajectory, limits)), None)
    except Exception:  # noqa: BLE001 - the sample cannot be read, for any reason
        return InvalidSample.UNREADABLE


def inspect_measured(
    sampled: Array, recomputed: Array, segments: npt.NDArray[np.int64], mismatch: float
) -> InvalidSample | None:
    """Compare one episode's log-probabilities as sampled with those that the learner computes.

    ``segments`` has the segment of every token. ``mismatch`` is the largest mean difference of a segment; see
    ``SampleLimits.mismatch``.
    """
    kinds = inspect_segments(sampled, recomputed, segments, mismatch).values()
    return next((kind for kind in _MEASURED if kind in kinds), None)


def inspect_segments(
    sampled: Array, recomputed: Array, segments: npt.NDArray[np.int64], mismatch: float
) -> dict[int, InvalidSample]:
    """Return what is wrong with each segment, compared as by ``inspect_measured``. Valid segments are left out."""
    difference = np.abs(recomputed - sampled)
    means = {int(segment): float(difference[segments == segment].mean()) for segment in np.unique(segments)}
    broken = set(segments[~np.isfinite(recomputed)].tolist())
    mismatched = {segment: InvalidSample.SAMPLER_MISMATCH for segment, mean in means.items() if mean > mismatch}
    return mismatched | dict.fromkeys(broken, InvalidSample.RECOMPUTED_NOT_FINITE)


def _membership(member: Trajectory, group: TrajectoryGroup, seen: set[bytes]) -> InvalidSample | None:
    try:
        first, task = group.members[0], member.task
        if task != group.task:
            return InvalidSample.WRONG_TASK
        if (member.seed, member.group, member.player) != (first.seed, first.group, first.player):
            return InvalidSample.WRONG_GROUP
        # No two samples of a run may share this key.
        key = encode_msgpack((task.env, task.seed, task.key, member.seed, member.group, member.member, member.player))
    except Exception:  # noqa: BLE001 - the same as in inspect()
        return InvalidSample.UNREADABLE
    if key in seen:
        return InvalidSample.DUPLICATE
    seen.add(key)
    return None


def _copied(member: Trajectory, seen: set[bytes]) -> InvalidSample | None:
    """Whether an earlier member of the step sampled the same tokens in the same contexts, and chance cannot explain it.

    Short and likely replies do repeat in a group. The probability that another member samples these very tokens is the product
    of their probabilities.
    """
    if member.stop.failed or sum(float(segment.logprobs.sum()) for segment in member.segments) > _COINCIDENCE:
        return None
    parts = [
        (np.asarray(segment.ids, np.int64).tobytes(), [(span.start, span.stop) for span in segment.spans])
        for segment in member.segments
    ]
    key = hashlib.blake2b(encode_msgpack((member.player, parts))).digest()
    if key in seen:
        return InvalidSample.COPIED
    seen.add(key)
    return None


# -------------------------------------------------------------------------------------------------------------- the checks

_Check = Callable[[Trajectory, SampleLimits], bool]


def _rewards(trajectory: Trajectory) -> list[float]:
    return [turn.reward for turn in trajectory.turns]


def _spans(trajectory: Trajectory) -> Iterable[tuple[Segment, Span]]:
    return ((segment, span) for segment in trajectory.segments for span in segment.spans)


def _any_segment(objects: Callable[[Segment, SampleLimits], bool]) -> _Check:
    return lambda trajectory, limits: any(objects(segment, limits) for segment in trajectory.segments)


def _any_span(objects: Callable[[Segment, Span], bool]) -> _Check:
    return lambda trajectory, _: any(objects(segment, span) for segment, span in _spans(trajectory))


def _any_logprob(objects: Callable[[Array, SampleLimits], bool]) -> _Check:
    return _any_segment(lambda segment, limits: objects(np.asarray(segment.logprobs, dtype=np.float64), limits))


def _malformed(array: object, kinds: str) -> bool:
    return not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds


def _sampled(segment: Segment) -> int:
    return sum(span.stop - span.start for span in segment.spans)


def _decreasing(values: list[int]) -> bool:
    return any(after < before for before, after in itertools.pairwise(values))


def _versions(trajectory: Trajectory) -> list[int]:
    """The versions that sampled, turn by turn."""
    sampled = [span for _, span in _spans(trajectory) if span.stop > span.start]
    return [span.version for span in sorted(sampled, key=lambda span: span.turn)]


def _all_zero(trajectory: Trajectory, limits: SampleLimits) -> bool:
    every = np.concatenate([segment.logprobs for segment in trajectory.segments])
    return len(every) >= limits.zeros and not every.any()


def _turn_without_tokens(trajectory: Trajectory, _: SampleLimits) -> bool:
    spoken = {span.turn for _, span in _spans(trajectory) if span.stop > span.start}
    return any(turn.completion.text and k not in spoken for k, turn in enumerate(trajectory.turns))


def _reward_huge(trajectory: Trajectory, limits: SampleLimits) -> bool:
    return math.fsum(map(abs, _rewards(trajectory))) > limits.reward


def _unfinished(trajectory: Trajectory, _: SampleLimits) -> bool:
    """Whether the budget of the run cut the episode. The budget of an agent belongs to its episode, like a turn limit."""
    return trajectory.stop is StopReason.BUDGET and not isinstance(trajectory.agent, AgentRecord)


def _sampled_twice(trajectory: Trajectory, _: SampleLimits) -> bool:
    """Whether the same tokens after the same context count twice in a turn that does not say that it sampled so many.

    A strategy or an agent may ask twice with the same prompt and get the same reply. Then the turn's usage, or the calls of the
    agent, hold both.
    """
    if len(trajectory.segments) < 2:
        return False
    seen: set[tuple[int, bytes]] = set()
    repeated: set[int] = set()
    sampled: Counter[int] = Counter()
    for segment, span in _spans(trajectory):
        key = (span.turn, hashlib.blake2b(np.asarray(segment.ids[: span.stop], np.int64).tobytes()).digest())
        if span.stop > span.start and key in seen:
            repeated.add(span.turn)
        seen.add(key)
        sampled[span.turn] += span.stop - span.start
    calls: Counter[int] = Counter()
    if isinstance(trajectory.agent, AgentRecord):
        for call in trajectory.agent.calls:
            calls[call.turn] += call.tokens
    for turn in repeated:
        usage = trajectory.turns[turn].completion.usage
        if sampled[turn] > max(calls[turn], 0 if usage is None else usage.completion_tokens):
            return True
    return False


_CHECKS: tuple[tuple[InvalidSample, _Check], ...] = (
    (InvalidSample.PRIVILEGED, lambda t, limits: t.privileged and not limits.privileged),
    (InvalidSample.UNFINISHED, _unfinished),
    (InvalidSample.NO_TURNS, lambda t, _: not t.turns),
    (InvalidSample.REWARD_NOT_A_NUMBER, lambda t, _: not all(isinstance(r, numbers.Real) for r in _rewards(t))),
    (InvalidSample.REWARD_NAN, lambda t, _: any(map(math.isnan, _rewards(t)))),
    (InvalidSample.REWARD_INFINITE, lambda t, _: any(map(math.isinf, _rewards(t)))),
    (InvalidSample.REWARD_HUGE, _reward_huge),
    (InvalidSample.NO_SEGMENTS, lambda t, _: not t.segments),
    (InvalidSample.IDS_MALFORMED, _any_segment(lambda s, _: _malformed(s.ids, "iu"))),
    (InvalidSample.EMPTY_SEGMENT, _any_segment(lambda s, _: not len(s.ids))),
    (InvalidSample.ID_NEGATIVE, _any_segment(lambda s, _: bool((s.ids < 0).any()))),
    (InvalidSample.ID_OUT_OF_VOCABULARY, _any_segment(lambda s, limits: bool((s.ids >= limits.vocabulary).any()))),
    (InvalidSample.TOO_LONG, _any_segment(lambda s, limits: len(s.ids) > limits.context)),
    (InvalidSample.SAMPLED_WITHOUT_CONTEXT, _any_span(lambda _, span: span.start == 0 < span.stop)),
    (InvalidSample.NOTHING_SAMPLED, lambda t, _: not any(map(_sampled, t.segments))),
    (InvalidSample.LOGPROBS_MALFORMED, _any_segment(lambda s, _: _malformed(s.logprobs, "f"))),
    (InvalidSample.LOGPROB_NAN, _any_logprob(lambda values, _: bool(np.isnan(values).any()))),
    # Rounding can push the log of a probability of one just above zero.
    (InvalidSample.LOGPROB_POSITIVE, _any_logprob(lambda values, _: bool((values > 1e-4).any()))),
    (InvalidSample.LOGPROB_INFINITE, _any_logprob(lambda values, _: bool(np.isinf(values).any()))),
    (InvalidSample.LOGPROB_IMPROBABLE, _any_logprob(lambda values, limits: bool((values < limits.logprob).any()))),
    (InvalidSample.LOGPROBS_ALL_ZERO, _all_zero),
    (InvalidSample.TURN_OUT_OF_RANGE, lambda t, _: any(not 0 <= span.turn < len(t.turns) for _, span in _spans(t))),
    (InvalidSample.SAMPLED_TWICE, _sampled_twice),
    (InvalidSample.TURN_DECREASING, _any_segment(lambda s, _: _decreasing([span.turn for span in s.spans]))),
    (InvalidSample.TURN_WITHOUT_TOKENS, _turn_without_tokens),
    (InvalidSample.VERSION_NEGATIVE, lambda t, _: any(version < 0 for version in _versions(t))),
    (InvalidSample.VERSION_DECREASING, lambda t, _: _decreasing(_versions(t))),
    (InvalidSample.VERSION_FUTURE, lambda t, limits: max(_versions(t)) > limits.version),
    (InvalidSample.VERSION_STALE, lambda t, limits: limits.version - min(_versions(t)) > limits.staleness),
)
