import json
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import SchemaError, UsageError

EASY, HARD, HANOI = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard", "game:TowerofHanoi-v0-easy"

WEIGHTS = st.dictionaries(st.sampled_from([EASY, HARD, HANOI]), st.floats(0.01, 100), min_size=1)


@given(WEIGHTS, st.integers(0, 2**40), st.integers(0, 30), st.integers(1, 30))
def test_a_resumed_mixture_goes_on_as_if_it_had_never_stopped(
    weights: dict[str, float], seed: int, before: int, after: int
) -> None:
    whole = list(islice(palestra.mix(weights, seed=seed), before + after))
    first = palestra.mix(weights, seed=seed)
    assert list(islice(first, before)) == whole[:before]
    saved = json.loads(json.dumps(first.state))
    second = palestra.mix(dict(reversed(weights.items())), seed=seed).resume(saved)
    assert list(islice(second, after)) == whole[before:]


def test_weights_are_kept() -> None:
    counts = Counter(task.env for task in palestra.mix({EASY: 3, HANOI: 1, HARD: 0}, n=4000))
    assert HARD not in counts
    assert counts[EASY] == pytest.approx(3000, abs=4 * (4000 * 0.75 * 0.25) ** 0.5)


def test_a_pattern_shares_its_weight_and_takes_levels_rather_than_bare_ids() -> None:
    mixture = palestra.mix({"game:GuessTheNumber*": 3, HANOI: 3})
    levels = [f"game:GuessTheNumber-v0-{level}" for level in ("easy", "hard", "random")]
    assert mixture.weights == pytest.approx({HANOI: 0.5, **dict.fromkeys(levels, 1 / 6)})


@pytest.mark.parametrize("other", [{EASY: 1.0}, {EASY: 1.0, HARD: 2.0}])
def test_the_state_of_another_mixture_is_refused(other: dict[str, float]) -> None:
    saved = palestra.mix({EASY: 1, HARD: 1}).state
    with pytest.raises(UsageError, match="another mixture"):
        palestra.mix(other).resume(saved)
    with pytest.raises(UsageError, match="another mixture"):
        palestra.mix({EASY: 1, HARD: 1}, seed=1).resume(saved)


@pytest.mark.parametrize("state", [{}, {"position": -1}, {"position": "3"}, {"position": True}])
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        palestra.mix({EASY: 1}).resume(state)


@pytest.mark.parametrize("weights", [{}, {EASY: 0}, {EASY: -1}, {EASY: float("nan")}, {EASY: float("inf")}, {"nothing:*": 1}])
def test_mixtures_of_nothing_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        palestra.mix(weights)
