"""Ranks, probabilities of improvement and profiles, against what they must be by construction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.studies.results import result

from palestra.errors import UsageError
from palestra.studies.ranking import profile, rank_arms, scores_of


def table(**arms: list[list[float]]) -> dict[str, dict[str, np.ndarray]]:
    return {"one": {arm: np.asarray(rows) for arm, rows in arms.items()}}


def test_an_arm_that_always_wins_has_rank_one_and_certain_improvement() -> None:
    ranking = rank_arms(table(good=[[1.0] * 30] * 5, fair=[[0.5] * 30] * 5, bad=[[0.0] * 30] * 5), resamples=200)
    assert [ranking.ranks[arm].value for arm in ("good", "fair", "bad")] == [1.0, 2.0, 3.0]
    assert (ranking.ranks["good"].low, ranking.ranks["good"].high) == (1.0, 1.0)
    assert ranking.improvement["good", "bad"].value == 1.0
    assert ranking.seeds == 5


def test_equal_arms_share_a_rank_and_improve_half_the_time() -> None:
    ranking = rank_arms(table(a=[[0.5] * 10] * 3, b=[[0.5] * 10] * 3, c=[[0.5] * 10] * 3), resamples=50)
    assert {rank.value for rank in ranking.ranks.values()} == {2.0}
    assert ranking.improvement["a", "b"].value == 0.5


def test_the_intervals_cover_the_true_improvement() -> None:
    """Two arms whose runs score normally, one standard deviation apart: the truth is Φ(1/√2) = 0.76."""
    hit = 0
    for number in range(60):
        rng = np.random.default_rng(number)
        scores = {"one": {"a": 1.0 + rng.normal(size=(20, 1)), "b": rng.normal(size=(20, 1))}}
        improvement = rank_arms(scores, resamples=200).improvement["a", "b"]
        hit += improvement.low <= 0.760 <= improvement.high
    assert hit >= 50  # 95 % intended; a bootstrap of 20 runs is a little narrow


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_a_profile_falls_from_all_runs_to_none(means: list[float]) -> None:
    profile_of_a = profile(table(a=[[value] for value in means]), np.array([0.0, 0.25, 0.5, 1.01]), resamples=50)["a"]
    assert profile_of_a.share[0] == 1.0
    assert profile_of_a.share[-1] == 0.0
    for values in profile_of_a:
        assert all(np.diff(values) <= 0)
    assert all(profile_of_a.low <= profile_of_a.high)


def test_an_arm_that_misses_an_environment_is_not_ranked() -> None:
    runs = [result("one", "a"), result("one", "b"), result("two", "a")]
    with pytest.raises(UsageError, match="two has no run of b"):
        scores_of(runs, "success")
