"""Batches, weights and packing: nothing lost, nothing twice, and the same sums however it is split."""

from dataclasses import replace
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.samples import random_trajectory

from palestra.foundation.encoding import floats, ints
from palestra.recipes.learner import Layout, PackingConfig
from palestra.training.learner.batch import Batch, micro_batch, plan, token_weights, value_weights
from palestra.trajectory import Segment, Span, Trajectory

LAYOUTS: tuple[Layout, ...] = ("padded", "packed")


def some_batch(seed: int, episodes: int = 6) -> Batch:
    rng = np.random.default_rng(seed)
    trajectories = [
        random_trajectory(rng, turns=int(rng.integers(1, 5)), segments=int(rng.integers(1, 3)), member=m)
        for m in range(episodes)
    ]
    return Batch.of(trajectories)


def test_the_flat_arrays_name_every_sampled_token_once() -> None:
    rng = np.random.default_rng(0)
    trajectories = [random_trajectory(rng, turns=3, segments=2, member=m) for m in range(4)]
    batch = Batch.of(trajectories)
    assert batch.count == 4
    for e, trajectory in enumerate(trajectories):
        place = batch.tokens_of(e)
        sampled = np.concatenate([segment.logprobs for segment in trajectory.segments])
        np.testing.assert_array_equal(batch.sampled[place], sampled)
        ids = np.concatenate([segment.ids[segment.mask] for segment in trajectory.segments])
        got = [batch.ids[s][p] for s, p in zip(batch.segments[place], batch.positions[place], strict=True)]
        np.testing.assert_array_equal(got, ids)
        assert batch.ids[batch.last_segment_of(e)] is trajectory.segments[-1].ids


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        # Episode 0 has 3 sampled tokens in two segments, episode 1 has 1.
        ("token_mean", [1 / 4] * 4),
        ("sequence_mean", [1 / 6, 1 / 6, 1 / 6, 1 / 2]),  # 1/(2 episodes · its tokens)
        ("constant", [1 / 20] * 4),  # 1/(2 episodes · 10)
    ],
)
def test_token_weights(aggregation: Literal["token_mean", "sequence_mean", "constant"], expected: list[float]) -> None:
    batch = Batch(
        ids=(ints([1, 2, 3]), ints([1, 2]), ints([1, 2])),
        owners=np.array([0, 0, 1]),
        count=2,
        segments=np.array([0, 0, 1, 2]),
        positions=np.array([1, 2, 1, 1]),
        turns=np.array([0, 0, 1, 0]),
        sampled=np.zeros(4),
    )
    np.testing.assert_allclose(token_weights(batch, aggregation, 10), expected, atol=1e-12)


def test_value_weights_count_the_targets() -> None:
    batch = some_batch(0)
    targets = np.full(len(batch.positions), np.nan)
    targets[:5] = 1.0
    np.testing.assert_allclose(value_weights(replace(batch, targets=targets)), 0.2)


def test_take_keeps_every_array_in_step() -> None:
    batch: Any = some_batch(1)
    batch = replace(batch, advantages=np.arange(len(batch.positions), dtype=np.float64), old=batch.sampled - 1)
    part: Any = batch.take([4, 1])
    for new, old in enumerate([4, 1]):
        np.testing.assert_array_equal(part.advantages[part.tokens_of(new)], batch.advantages[batch.tokens_of(old)])
        np.testing.assert_array_equal(part.old[part.tokens_of(new)], batch.sampled[batch.tokens_of(old)] - 1)
        np.testing.assert_array_equal(part.positions[part.tokens_of(new)], batch.positions[batch.tokens_of(old)])
        assert part.ids[part.last_segment_of(new)] is batch.ids[batch.last_segment_of(old)]


def test_the_tokens_of_an_episode_follow_its_turns_when_two_segments_alternate() -> None:
    first = Segment(ints([1, 2, 3, 4, 5]), (Span(1, 3, 0), Span(4, 5, 2)), floats([-1, -2, -5]))
    second = Segment(ints([6, 7, 8]), (Span(1, 3, 1),), floats([-3, -4]))
    trajectory = random_trajectory(np.random.default_rng(0), turns=3)
    batch = Batch.of([trajectory, replace_segments(trajectory, first, second), trajectory])
    tokens = batch.tokens_of(1)
    assert batch.sampled[tokens].tolist() == [-1, -2, -3, -4, -5]
    assert batch.turns[tokens].tolist() == [0, 0, 1, 1, 2]
    assert batch.ids[batch.last_segment_of(1)] is first.ids
    assert sorted(np.concatenate([batch.tokens_of(e) for e in range(3)])) == list(range(len(batch.positions)))


def replace_segments(trajectory: Trajectory, *segments: Segment) -> Trajectory:
    return msgspec.structs.replace(trajectory, segments=segments)


def test_split_gives_every_episode_to_one_mini_batch() -> None:
    batch = some_batch(2, episodes=7)
    parts = batch.split(3, np.random.default_rng(0))
    assert sum(part.count for part in parts) == 7
    assert sorted(np.concatenate([part.sampled for part in parts])) == sorted(batch.sampled)
    assert len(batch.split(50, np.random.default_rng(0))) == 7


def test_arrays_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="advantages"):
        replace(some_batch(0), advantages=np.zeros(1))
    first = Segment(ints([1, 2]), (Span(0, 2, 0),), floats([-1, -1]))
    with pytest.raises(ValueError, match="position 0"):
        Batch((first.ids,), np.array([0]), 1, np.array([0, 0]), np.array([0, 1]), np.zeros(2, dtype=int), np.zeros(2))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.integers(1, 60), st.sampled_from(LAYOUTS))
def test_a_plan_shares_all_segments_evenly(seed: int, episodes: int, ranks: int, positions: int, layout: Layout) -> None:
    batch = some_batch(seed, episodes)
    shares = plan(batch, ranks, PackingConfig(positions, layout))
    assert len(shares) == ranks
    assert len({len(share) for share in shares}) == 1
    assert sorted(s for share in shares for members in share for s in members) == list(range(len(batch.ids)))
    for share in shares:
        for members in share:
            made = micro_batch(batch, members, layout)
            assert made.input_ids.size <= positions or len(members) <= 1


@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from(LAYOUTS))
def test_micro_batches_point_at_what_predicts_each_sampled_token(seed: int, positions: int, layout: Layout) -> None:
    batch = some_batch(seed)
    (share,) = plan(batch, 1, PackingConfig(positions, layout))
    seen: list[int] = []
    for members in share:
        made = micro_batch(batch, members, layout)
        flat_ids, flat_positions = made.input_ids.ravel(), made.position_ids.ravel()
        for token, target, local, predictor in zip(made.tokens, made.targets, made.segments, made.predictors, strict=True):
            segment = batch.segments[token]
            assert made.chosen[local] == segment
            assert target == batch.ids[segment][batch.positions[token]]
            assert flat_ids[predictor] == batch.ids[segment][batch.positions[token] - 1]
            assert flat_positions[predictor] == batch.positions[token] - 1
        for segment, end in zip(made.chosen, made.ends, strict=True):
            assert flat_ids[end] == batch.ids[segment][-1]
            assert flat_positions[end] == len(batch.ids[segment]) - 1
        seen += made.tokens.tolist()
    assert sorted(seen) == list(range(len(batch.positions)))


def test_the_ranks_loads_are_close() -> None:
    rng = np.random.default_rng(0)
    batch = Batch.of([random_trajectory(rng, turns=int(rng.integers(1, 8)), longest=20, member=m) for m in range(200)])
    for layout in LAYOUTS:
        shares = plan(batch, 4, PackingConfig(1000, layout))
        loads = [sum(micro_batch(batch, members, layout).input_ids.size for members in share) for share in shares]
        assert max(loads) <= 1.1 * min(loads), (layout, loads)
        # A batch that does not fit into the memory fails at the beginning.
        for share in shares:
            costs = [micro_batch(batch, members, layout).input_ids.size for members in share]
            assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_batch_still_gives_each_rank_a_pass(layout: Layout) -> None:
    batch = Batch.of([])
    shares = plan(batch, 2, PackingConfig(10, layout))
    assert shares == (((),), ((),))
    made = micro_batch(batch, (), layout)
    assert made.input_ids.shape == (1, 1)
    assert len(made.tokens) == len(made.ends) == 0
