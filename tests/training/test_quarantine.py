"""Poisoned samples (F6): each kind is found, named and counted, and nothing of it reaches an advantage or a batch."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.training.samples import VOCABULARY, random_group, random_trajectory

from palestra.encoding import floats, ints
from palestra.training.advantage import AdvantageConfig, advantages
from palestra.training.batch import Batch
from palestra.training.groups import episode_of
from palestra.training.quarantine import Limits, Poison, inspect, inspect_measured, key_of, quarantine
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, TrajectoryGroup, Turn

LIMITS = Limits(vocabulary=VOCABULARY, context=200, version=5, staleness=2)
VERSION = 4


def healthy() -> Trajectory:
    """Two turns in one segment: prompt 2 ids, action 3, observation 2, action 3."""
    ids = ints([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    spans = (Span(2, 5, 0, VERSION), Span(7, 10, 1, VERSION))
    segment = Segment(ids, spans, floats([-0.5, -1, -1.5, -0.2, -0.3, -2]))
    turns = (Turn("a", Completion("x"), 0.0), Turn("b", Completion("y"), 1.0))
    return Trajectory(Task("game:x", 0), StopReason.TERMINATED, turns=turns, segments=(segment,))


def forged(value: Any, **changes: Any) -> Any:
    """A copy with fields set past every check of the constructor, as a faulty producer would."""
    copy = msgspec.structs.replace(value)
    for name, change in changes.items():
        msgspec.structs.force_setattr(copy, name, change)
    return copy


def segment(**changes: Any) -> Trajectory:
    trajectory = healthy()
    return forged(trajectory, segments=(forged(trajectory.segments[0], **changes),))  # type: ignore[no-any-return]


def logprobs(*values: float) -> Trajectory:
    return segment(logprobs=np.array(values, dtype=np.float32))


def spans(*values: tuple[int, int, int, int]) -> Trajectory:
    return segment(spans=tuple(Span(*value) for value in values))


def reward(value: Any) -> Trajectory:
    trajectory = healthy()
    return forged(trajectory, turns=(trajectory.turns[0], forged(trajectory.turns[1], reward=value)))  # type: ignore[no-any-return]


V = VERSION
POISONED: dict[Poison, Callable[[], Trajectory]] = {
    Poison.UNREADABLE: lambda: segment(spans=None),
    Poison.NO_TURNS: lambda: forged(healthy(), turns=()),
    Poison.REWARD_NOT_A_NUMBER: lambda: reward("1.0"),
    Poison.REWARD_NAN: lambda: reward(math.nan),
    Poison.REWARD_INFINITE: lambda: reward(-math.inf),
    Poison.REWARD_HUGE: lambda: reward(1e9),
    Poison.NO_SEGMENTS: lambda: forged(healthy(), segments=()),
    Poison.EMPTY_SEGMENT: lambda: segment(ids=np.zeros(0, dtype=np.int32), spans=(), logprobs=floats([])),
    Poison.IDS_MALFORMED: lambda: segment(ids=np.ones(10, dtype=np.float32)),
    Poison.ID_NEGATIVE: lambda: segment(ids=np.array([1, 2, 3, -4, 5, 6, 7, 8, 9, 10])),
    Poison.ID_OUT_OF_VOCABULARY: lambda: segment(ids=np.array([1, 2, 3, 4, 5, 6, VOCABULARY, 8, 9, 10])),
    Poison.TOO_LONG: lambda: segment(ids=np.ones(201, dtype=np.int32)),
    Poison.SPAN_REVERSED: lambda: spans((5, 2, 0, V), (7, 10, 1, V)),
    Poison.SPAN_OUT_OF_RANGE: lambda: spans((2, 5, 0, V), (7, 11, 1, V)),
    Poison.SPAN_OVERLAP: lambda: spans((2, 5, 0, V), (4, 7, 1, V)),
    Poison.SAMPLED_WITHOUT_CONTEXT: lambda: spans((0, 3, 0, V), (7, 10, 1, V)),
    Poison.NOTHING_SAMPLED: lambda: segment(spans=(), logprobs=floats([])),
    Poison.LOGPROBS_MALFORMED: lambda: segment(logprobs=np.ones((6, 1), dtype=np.float32)),
    Poison.LOGPROBS_MISSING: lambda: logprobs(-1, -1, -1, -1, -1),
    Poison.LOGPROBS_SURPLUS: lambda: logprobs(-1, -1, -1, -1, -1, -1, -1),
    Poison.LOGPROB_NAN: lambda: logprobs(-1, math.nan, -1, -1, -1, -1),
    Poison.LOGPROB_POSITIVE: lambda: logprobs(-1, 0.5, -1, -1, -1, -1),
    Poison.LOGPROB_INFINITE: lambda: logprobs(-1, -math.inf, -1, -1, -1, -1),
    Poison.LOGPROB_IMPROBABLE: lambda: logprobs(-1, -5000, -1, -1, -1, -1),
    Poison.LOGPROBS_ALL_ZERO: lambda: segment(
        ids=np.ones(40, dtype=np.int32), spans=(Span(2, 20, 0, V), Span(22, 40, 1, V)), logprobs=np.zeros(36, dtype=np.float32)
    ),
    Poison.TURN_OUT_OF_RANGE: lambda: spans((2, 5, 0, V), (7, 10, 2, V)),
    Poison.TURN_DECREASING: lambda: spans((2, 5, 1, V), (7, 10, 0, V)),
    Poison.TURN_WITHOUT_TOKENS: lambda: spans((2, 5, 0, V), (7, 10, 0, V)),
    Poison.VERSION_NEGATIVE: lambda: spans((2, 5, 0, -1), (7, 10, 1, V)),
    Poison.VERSION_DECREASING: lambda: spans((2, 5, 0, V), (7, 10, 1, V - 1)),
    Poison.VERSION_FUTURE: lambda: spans((2, 5, 0, V), (7, 10, 1, 6)),
    Poison.VERSION_STALE: lambda: spans((2, 5, 0, 2), (7, 10, 1, V)),
}
OF_THE_BATCH = {Poison.WRONG_TASK, Poison.WRONG_GROUP, Poison.DUPLICATE, Poison.ALREADY_CONSUMED}
OF_THE_MEASUREMENT = {Poison.RECOMPUTED_NOT_FINITE, Poison.SAMPLER_MISMATCH}


def test_every_kind_is_tested_and_there_are_at_least_thirty() -> None:
    assert set(POISONED) | OF_THE_BATCH | OF_THE_MEASUREMENT == set(Poison)
    assert len(Poison) >= 30


@pytest.mark.parametrize("kind", list(POISONED))
def test_each_kind_is_named(kind: Poison) -> None:
    assert inspect(healthy(), LIMITS) is None
    assert inspect(POISONED[kind](), LIMITS) is kind


@pytest.mark.parametrize("kind", list(POISONED))
def test_a_poisoned_member_leaves_its_siblings_untouched(kind: Poison) -> None:
    siblings = [msgspec.structs.replace(healthy(), member=m) for m in range(3)]
    poisoned = forged(POISONED[kind](), member=3)
    group = TrajectoryGroup(Task("game:x", 0), (siblings[0], poisoned, *siblings[1:]))
    result = quarantine([group], LIMITS)
    assert result.counts == {kind: 1}
    assert [member is None for member in result.groups[0]] == [False, True, False, False]
    kept = [member for member in result.groups[0] if member is not None]
    credits = advantages([[None if m is None else episode_of(m) for m in result.groups[0]]], AdvantageConfig("grpo"))
    assert all(np.isfinite(c.per_token()).all() for c in credits[0] if c is not None)
    assert len(Batch.of(kept).positions) == 18


def test_members_that_do_not_belong_are_named() -> None:
    mine, other = Task("game:x", 0), Task("game:x", 1)

    def member(**changes: Any) -> Trajectory:
        return msgspec.structs.replace(healthy(), **changes)

    group = TrajectoryGroup(
        mine, (member(), member(task=other, member=1), member(group=9, member=2), member(member=0), member(member=4))
    )
    result = quarantine([group], LIMITS, consumed={key_of(member(member=4))})
    assert [finding.kind for finding in result.findings] == [
        Poison.WRONG_TASK,
        Poison.WRONG_GROUP,
        Poison.DUPLICATE,
        Poison.ALREADY_CONSUMED,
    ]
    assert [found is None for found in result.groups[0]] == [False, True, True, True, True]


def test_a_failed_member_is_no_poison_and_no_sample() -> None:
    failed = msgspec.structs.replace(healthy(), stop=StopReason.ERROR, segments=(), turns=(), member=1)
    result = quarantine([TrajectoryGroup(Task("game:x", 0), (healthy(), failed))], LIMITS)
    assert result.counts == {}
    assert result.groups[0][1] is None


def test_what_the_trainer_measures_can_poison_too() -> None:
    sampled = np.array([-1.0, -2.0])
    assert inspect_measured(sampled, sampled - 0.5, LIMITS) is None
    assert inspect_measured(sampled, np.array([-1.0, math.nan]), LIMITS) is Poison.RECOMPUTED_NOT_FINITE
    assert inspect_measured(sampled, sampled - 7, LIMITS) is Poison.SAMPLER_MISMATCH


@pytest.mark.parametrize("seed", range(20))
def test_healthy_samples_pass(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [random_group(rng, 4, group=g) for g in range(3)]
    assert quarantine(groups, Limits(VOCABULARY, 1000)).findings == ()


def test_in_flight_updates_and_silent_turns_pass() -> None:
    # One turn sampled by two versions, and a turn with an empty text and no tokens.
    trajectory = spans((2, 4, 0, 3), (4, 5, 0, 4), (7, 10, 1, 5))
    silent = forged(trajectory, turns=(*trajectory.turns, Turn("c", Completion(""), 0.0)))
    assert inspect(silent, LIMITS) is None


def test_random_bytes_in_place_of_arrays_never_raise() -> None:
    rng = np.random.default_rng(0)
    junk: list[Any] = [None, 3, "x", b"x", [], {}, math.nan, np.zeros((2, 2)), np.array(["a"]), object(), (1, 2)]
    fields = ["ids", "spans", "logprobs"]
    for _ in range(300):
        trajectory = random_trajectory(rng)
        broken = forged(trajectory.segments[0], **{fields[rng.integers(3)]: junk[rng.integers(len(junk))]})
        assert inspect(forged(trajectory, segments=(broken,)), Limits(VOCABULARY, 1000)) is not None
