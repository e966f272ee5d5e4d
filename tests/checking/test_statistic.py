"""The betting test: never above its error rate, and not blind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.checking.statistic import p_value_mean_above

scores = st.lists(st.floats(0, 1), max_size=60)


@given(scores, st.floats(0.01, 0.99))
def test_it_is_a_probability(values: list[float], mean: float) -> None:
    assert 0.0 <= p_value_mean_above(values, mean, 0.0) <= 1.0


@given(scores, st.floats(0.01, 0.99))
def test_scores_at_or_below_the_mean_prove_nothing(values: list[float], mean: float) -> None:
    assert p_value_mean_above([min(value, mean) for value in values], mean, 0.0) == 1.0


@given(scores, st.floats(0.01, 0.5), st.floats(0.0, 0.4))
def test_a_higher_claim_is_harder_to_prove(values: list[float], mean: float, more: float) -> None:
    assert p_value_mean_above(values, mean, 0.0) <= p_value_mean_above(values, mean + more, 0.0) * (1 + 1e-9)


@given(scores, st.floats(0.01, 0.99), st.floats(-100, 100), st.floats(0.1, 100))
def test_the_scale_does_not_matter(values: list[float], mean: float, shift: float, scale: float) -> None:
    moved = [max(value * scale, 0.0) + shift for value in values]
    assert p_value_mean_above(moved, mean * scale + shift, shift) == pytest.approx(
        p_value_mean_above(values, mean, 0.0), rel=1e-6
    )


@given(st.permutations([0.0, 1.0, 1.0, 0.3, 0.7, 1.0]))
def test_the_order_does_not_matter(values: list[float]) -> None:
    assert p_value_mean_above(values, 0.2, 0.0) == pytest.approx(p_value_mean_above(sorted(values), 0.2, 0.0))


@pytest.mark.parametrize("chance", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("count", [5, 100])
def test_the_innocent_are_blamed_no_more_often_than_said(chance: float, count: int) -> None:
    rng = np.random.default_rng(0)
    runs = 2000
    blamed = sum(p_value_mean_above((rng.random(count) < chance).tolist(), chance, 0.0) < 0.05 for _ in range(runs))
    # 0.05 is the bound; three standard errors of this simulation are 0.015.
    assert blamed / runs <= 0.05 + 0.015


def test_hand_computed() -> None:
    """One score of 1 against a mean of 1/2: the stake f makes 1 + f of each coin."""
    stakes = np.concatenate([np.geomspace(0.001, 0.1, 10), np.linspace(0.15, 0.95, 17)])
    assert p_value_mean_above([1.0], 0.5, 0.0) == pytest.approx(1 / (1 + stakes.mean()))


@pytest.mark.parametrize(("rate", "floor"), [(0.15, 0.02), (0.51, 0.02), (0.75, 0.52), (1.0, 0.9)])
def test_a_hundred_scores_convict_the_guilty(rate: float, floor: float) -> None:
    wins = round(100 * rate)
    assert p_value_mean_above([1.0] * wins + [0.0] * (100 - wins), floor, 0.0) < 0.001


def test_a_bound_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="lower bound"):
        p_value_mean_above([0.0, -1.0], 0.5, 0.0)
    with pytest.raises(ValueError, match="lower bound"):
        p_value_mean_above([1.0], 0.5, 0.5)
