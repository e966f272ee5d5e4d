"""Partial groups: an explicit rule, and every member counted exactly once."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import PartialGroups
from palestra.training.algorithms.groups import GroupMember, episode_of, select
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, Turn


def reward(value: float) -> GroupMember:
    return GroupMember(np.array([value]), np.array([1]), terminated=True)


def groups_of(*groups: Sequence[float | None]) -> list[list[GroupMember | None]]:
    return [[None if value is None else reward(value) for value in group] for group in groups]


GROUPS = groups_of((1, 0, 1), (1, None, 0), (None, None, 1), (None, None, None), (1, 1, 1))


@pytest.mark.parametrize(
    ("policy", "used", "dropped"),
    [
        (PartialGroups("at_least", 2), (0, 1, 4), (2, 3)),
        (PartialGroups("at_least", 1), (0, 1, 2, 4), (3,)),
        (PartialGroups("drop"), (0, 4), (1, 2, 3)),
        (PartialGroups("drop", keep_constant=False), (0,), (1, 2, 3, 4)),
    ],
)
def test_each_rule(policy: PartialGroups, used: tuple[int, ...], dropped: tuple[int, ...]) -> None:
    selection = select(GROUPS, policy)
    assert (selection.used, selection.dropped) == (used, dropped)


def test_the_counts_say_where_everyone_went() -> None:
    counts = select(GROUPS, PartialGroups("at_least", 2, keep_constant=False)).counts
    assert msgspec.structs.asdict(counts) == {
        "members": 15,
        "used": 5,
        "failed": 6,
        "dropped": 1,
        "constant": 3,
        "constant_groups": 1,
    }


@given(
    st.lists(st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0])), max_size=5), max_size=8),
    st.sampled_from(["at_least", "drop"]),
    st.integers(1, 4),
    st.booleans(),
)
def test_nobody_is_lost_or_counted_twice(groups: list[list[float | None]], rule: str, minimum: int, keep: bool) -> None:
    policy = msgspec.convert({"rule": rule, "minimum": minimum, "keep_constant": keep}, PartialGroups)
    selection = select(groups_of(*groups), policy)
    counts = selection.counts
    assert counts.members == counts.used + counts.failed + counts.dropped + counts.constant
    assert sorted(selection.used + selection.dropped) == list(range(len(groups)))


def trajectory(**changes: object) -> Trajectory:
    whole = Trajectory(
        Task("game:x", 1),
        StopReason.TERMINATED,
        turns=(Turn("first", Completion("a"), 0.25), Turn("second", Completion("b"), 1.0)),
        segments=(
            Segment(ints([1, 2, 3, 4, 5]), (Span(1, 3, 0, 7), Span(4, 5, 1, 7)), floats([-1, -2, -3])),
            Segment(ints([6, 7]), (Span(1, 2, 1, 8),), floats([-4])),
        ),
    )
    return msgspec.structs.replace(whole, **changes)


def test_the_view_counts_sampled_tokens_over_all_segments() -> None:
    view = episode_of(trajectory())
    assert view is not None
    assert view.rewards.tolist() == [0.25, 1.0]
    assert view.lengths.tolist() == [2, 2]
    assert view.terminated
    assert view.anchors == ("first", "second")


def test_what_is_not_measured_has_no_future() -> None:
    cut = GroupMember(np.zeros(1), np.ones(1, dtype=np.int64), terminated=False)
    assert (cut.kl, cut.values, cut.anchors, cut.role, cut.bootstrap) == (None, None, (), ("", ""), 0.0)


def test_a_failed_trajectory_has_no_view_and_a_cut_one_is_not_terminated() -> None:
    assert episode_of(trajectory(stop=StopReason.DEADLINE)) is None
    cut = episode_of(trajectory(stop=StopReason.TURN_LIMIT))
    assert cut is not None
    assert not cut.terminated
