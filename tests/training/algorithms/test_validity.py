"""Invalid samples (F6): each kind is found, named and counted, and nothing of it reaches an advantage or a batch."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.training.samples import VOCABULARY, random_trajectory

from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import AdvantageConfig
from palestra.training.algorithms.validity import InvalidSample, SampleLimits, inspect, inspect_measured, quarantine
from palestra.trajectory import (
    AgentCall,
    AgentRecord,
    Completion,
    Segment,
    Span,
    StopReason,
    Task,
    Trajectory,
    TrajectoryGroup,
    Turn,
    Usage,
)

LIMITS = SampleLimits(vocabulary=VOCABULARY, context=200, version=5, staleness=2)
VERSION = 4
GRPO = AdvantageConfig("grpo")


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


def doubled(usage: Usage | None = None) -> Trajectory:
    """An episode whose only segment stands twice."""
    trajectory = healthy()
    turns = tuple(forged(turn, completion=Completion(turn.action, usage=usage)) for turn in trajectory.turns)
    return forged(trajectory, segments=trajectory.segments * 2, turns=turns)  # type: ignore[no-any-return]


V = VERSION
INVALID: dict[InvalidSample, Callable[[], Trajectory]] = {
    InvalidSample.UNREADABLE: lambda: segment(spans=None),
    InvalidSample.PRIVILEGED: lambda: forged(healthy(), privileged=True),
    InvalidSample.UNFINISHED: lambda: forged(healthy(), stop=StopReason.BUDGET),
    InvalidSample.NO_TURNS: lambda: forged(healthy(), turns=()),
    InvalidSample.REWARD_NOT_A_NUMBER: lambda: reward("1.0"),
    InvalidSample.REWARD_NAN: lambda: reward(math.nan),
    InvalidSample.REWARD_INFINITE: lambda: reward(-math.inf),
    InvalidSample.REWARD_HUGE: lambda: reward(1e9),
    InvalidSample.NO_SEGMENTS: lambda: forged(healthy(), segments=()),
    InvalidSample.EMPTY_SEGMENT: lambda: segment(ids=np.zeros(0, dtype=np.int32), spans=(), logprobs=floats([])),
    InvalidSample.IDS_MALFORMED: lambda: segment(ids=np.ones(10, dtype=np.float32)),
    InvalidSample.ID_NEGATIVE: lambda: segment(ids=np.array([1, 2, 3, -4, 5, 6, 7, 8, 9, 10])),
    InvalidSample.ID_OUT_OF_VOCABULARY: lambda: segment(ids=np.array([1, 2, 3, 4, 5, 6, VOCABULARY, 8, 9, 10])),
    InvalidSample.TOO_LONG: lambda: segment(ids=np.ones(201, dtype=np.int32)),
    InvalidSample.SAMPLED_WITHOUT_CONTEXT: lambda: spans((0, 3, 0, V), (7, 10, 1, V)),
    InvalidSample.NOTHING_SAMPLED: lambda: segment(spans=(), logprobs=floats([])),
    InvalidSample.SAMPLED_TWICE: doubled,
    InvalidSample.LOGPROBS_MALFORMED: lambda: segment(logprobs=np.ones((6, 1), dtype=np.float32)),
    InvalidSample.LOGPROB_NAN: lambda: logprobs(-1, math.nan, -1, -1, -1, -1),
    InvalidSample.LOGPROB_POSITIVE: lambda: logprobs(-1, 0.5, -1, -1, -1, -1),
    InvalidSample.LOGPROB_INFINITE: lambda: logprobs(-1, -math.inf, -1, -1, -1, -1),
    InvalidSample.LOGPROB_IMPROBABLE: lambda: logprobs(-1, -5000, -1, -1, -1, -1),
    InvalidSample.LOGPROBS_ALL_ZERO: lambda: segment(
        ids=np.ones(40, dtype=np.int32), spans=(Span(2, 20, 0, V), Span(22, 40, 1, V)), logprobs=np.zeros(36, dtype=np.float32)
    ),
    InvalidSample.TURN_OUT_OF_RANGE: lambda: spans((2, 5, 0, V), (7, 10, 2, V)),
    InvalidSample.TURN_DECREASING: lambda: spans((2, 5, 1, V), (7, 10, 0, V)),
    InvalidSample.TURN_WITHOUT_TOKENS: lambda: spans((2, 5, 0, V), (7, 10, 0, V)),
    InvalidSample.VERSION_NEGATIVE: lambda: spans((2, 5, 0, -1), (7, 10, 1, V)),
    InvalidSample.VERSION_DECREASING: lambda: spans((2, 5, 0, V), (7, 10, 1, V - 1)),
    InvalidSample.VERSION_FUTURE: lambda: spans((2, 5, 0, V), (7, 10, 1, 6)),
    InvalidSample.VERSION_STALE: lambda: spans((2, 5, 0, 2), (7, 10, 1, V)),
}
OF_THE_BATCH = {InvalidSample.WRONG_TASK, InvalidSample.WRONG_GROUP, InvalidSample.DUPLICATE, InvalidSample.COPIED}
OF_THE_MEASUREMENT = {InvalidSample.RECOMPUTED_NOT_FINITE, InvalidSample.SAMPLER_MISMATCH}


def test_every_kind_is_tested_and_there_are_at_least_thirty() -> None:
    assert set(INVALID) | OF_THE_BATCH | OF_THE_MEASUREMENT == set(InvalidSample)
    assert len(InvalidSample) >= 30


@pytest.mark.parametrize("kind", list(INVALID))
def test_each_kind_is_named_and_leaves_its_siblings_untouched(kind: InvalidSample) -> None:
    assert inspect(healthy(), LIMITS) is None
    assert inspect(INVALID[kind](), LIMITS) is kind
    siblings = [msgspec.structs.replace(healthy(), member=m) for m in range(3)]
    group = TrajectoryGroup(Task("game:x", 0), (siblings[0], forged(INVALID[kind](), member=3), *siblings[1:]))
    (reasons,) = quarantine([group], LIMITS)
    assert reasons == [None, kind, None, None]


def test_members_that_do_not_belong_are_named() -> None:
    mine, other = Task("game:x", 0), Task("game:x", 1)

    def member(**changes: Any) -> Trajectory:
        return msgspec.structs.replace(healthy(), **changes)

    group = TrajectoryGroup(mine, (member(), member(task=other, member=1), member(group=9, member=2), member(member=0)))
    assert quarantine([group], LIMITS) == [[None, InvalidSample.WRONG_TASK, InvalidSample.WRONG_GROUP, InvalidSample.DUPLICATE]]


def unlikely(logprob: float, *, first: int = 1, **changes: Any) -> Trajectory:
    """An episode of one turn with twelve sampled tokens of this log-probability."""
    ids = ints(range(first, first + 20))
    part = Segment(ids, (Span(8, 20, 0, VERSION),), floats([logprob] * 12))
    episode = forged(healthy(), turns=(Turn("a", Completion("x"), 1.0),), segments=(part,))
    return msgspec.structs.replace(episode, **changes)  # type: ignore[no-any-return]


def test_a_member_whose_place_cannot_be_read_is_unreadable() -> None:
    odd = forged(healthy(), player=object())
    group = TrajectoryGroup(odd.task, (odd, healthy()))
    assert quarantine([group], LIMITS) == [[InvalidSample.UNREADABLE, InvalidSample.WRONG_GROUP]]


def test_a_sample_that_was_copied_to_another_member_or_attempt_is_found() -> None:
    def found(*members: Trajectory) -> list[InvalidSample | None]:
        return quarantine([TrajectoryGroup(Task("game:x", 0), members)], LIMITS)[0]

    original, copy = unlikely(-3.0), unlikely(-3.0, member=1, attempt=1)
    assert found(original, copy, unlikely(-3.0, member=2, first=2)) == [None, InvalidSample.COPIED, None]
    # Two members may well write the same short or likely reply.
    assert found(unlikely(-2.0), unlikely(-2.0, member=1)) == [None, None]
    # A copy of an invalid sample is another matter: nothing of the original is used.
    assert found(forged(original, privileged=True), copy) == [InvalidSample.PRIVILEGED, None]


def test_a_copy_is_found_in_another_group_of_the_step() -> None:
    groups = [TrajectoryGroup(Task("game:x", 0), (unlikely(-3.0, group=g),)) for g in range(2)]
    assert quarantine(groups, LIMITS) == [[None], [InvalidSample.COPIED]]


def test_a_reply_that_was_really_sampled_twice_is_valid() -> None:
    # A strategy that asks twice with one prompt says so in the usage of the turn, an agent in its calls.
    assert inspect(doubled(Usage(0, 6)), LIMITS) is None
    assert inspect(doubled(Usage(0, 5)), LIMITS) is InvalidSample.SAMPLED_TWICE
    calls = tuple(AgentCall(number, number % 2, "chat", "repeated", "agent", tokens=3) for number in range(4))
    assert inspect(forged(doubled(), agent=AgentRecord(calls)), LIMITS) is None
    assert inspect(forged(doubled(), agent=AgentRecord(calls[:3])), LIMITS) is InvalidSample.SAMPLED_TWICE


def test_the_same_reply_in_two_turns_is_valid() -> None:
    # A history that shows only the last observation may render the same prompt again.
    part = healthy().segments[0]
    first, second = (Segment(ints(part.ids[:5]), (Span(2, 5, turn, VERSION),), floats(part.logprobs[:3])) for turn in range(2))
    assert inspect(forged(healthy(), segments=(first, second)), LIMITS) is None


def test_small_rewards_of_many_turns_are_together_as_huge_as_one() -> None:
    def episode(*rewards: float) -> Trajectory:
        first, second = healthy().turns
        more = tuple(Turn("c", Completion(""), reward) for reward in rewards[2:])
        return forged(healthy(), turns=(forged(first, reward=rewards[0]), forged(second, reward=rewards[1]), *more))  # type: ignore[no-any-return]

    assert inspect(episode(9e5, 0.0), LIMITS) is None
    assert inspect(episode(*[9e5] * 100), LIMITS) is InvalidSample.REWARD_HUGE
    # Their sum is 0, and the return of the second turn is not.
    assert inspect(episode(-9e5, 9e5), LIMITS) is InvalidSample.REWARD_HUGE


def test_a_run_whose_policy_sees_the_environment_keeps_its_samples() -> None:
    searched = INVALID[InvalidSample.PRIVILEGED]()
    assert inspect(searched, msgspec.structs.replace(LIMITS, privileged=True)) is None


def test_an_agent_that_used_up_its_calls_has_finished() -> None:
    stopped = forged(healthy(), stop=StopReason.BUDGET, agent=AgentRecord())
    assert inspect(stopped, LIMITS) is None


def test_a_failed_member_is_no_poison_and_no_sample() -> None:
    failed = msgspec.structs.replace(healthy(), stop=StopReason.ERROR, segments=(), turns=(), member=1)
    assert quarantine([TrajectoryGroup(Task("game:x", 0), (healthy(), failed))], LIMITS) == [[None, None]]


def test_what_the_trainer_measures_can_poison_too() -> None:
    sampled = np.array([-1.0, -2.0])
    one, two = np.zeros(2, dtype=np.int64), np.arange(2)
    assert inspect_measured(sampled, sampled - 0.5, one, LIMITS.mismatch) is None
    assert inspect_measured(sampled, np.array([-1.0, math.nan]), one, LIMITS.mismatch) is InvalidSample.RECOMPUTED_NOT_FINITE
    assert inspect_measured(sampled, sampled - 7, one, LIMITS.mismatch) is InvalidSample.SAMPLER_MISMATCH
    # The mean over both tokens is within the limit; that of the second segment is not.
    off = sampled - np.array([0.0, 1.5 * LIMITS.mismatch])
    assert inspect_measured(sampled, off, one, LIMITS.mismatch) is None
    assert inspect_measured(sampled, off, two, LIMITS.mismatch) is InvalidSample.SAMPLER_MISMATCH


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
        assert inspect(forged(trajectory, segments=(broken,)), SampleLimits(VOCABULARY, 1000)) is not None
