"""Horizon schedules: pure functions of the step and of committed outcomes."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import UsageError
from palestra.recipes.algorithms import HorizonConfig
from palestra.training.algorithms.horizon import (
    Fixed,
    Linear,
    Schedule,
    StepOutcome,
    Stepwise,
    SuccessGated,
    schedule_of,
    turns_at,
)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Fixed(4), {0: 4, 10**6: 4}),
        # AgentGym-RL's BabyAI schedule. Step 100 is the first of the second stage, resumed there or not.
        (Stepwise((6, 13, 20), 100), {0: 6, 99: 6, 100: 13, 199: 13, 200: 20, 10**6: 20}),
        # 5 + 10·step/20, rounded down
        (Linear(5, 15, 20), {0: 5, 1: 5, 2: 6, 19: 14, 20: 15, 1000: 15}),
        (Linear(15, 5, 20), {0: 15, 2: 14, 20: 5}),
    ],
)
def test_schedules_of_the_step(schedule: Schedule, expected: dict[int, int]) -> None:
    assert {step: turns_at(schedule, step) for step in expected} == expected


def outcomes(*rates: float | None) -> list[StepOutcome]:
    return [StepOutcome(i, 10 if rate is not None else 0, round(10 * (rate or 0))) for i, rate in enumerate(rates)]


def test_the_gate_opens_after_a_full_window_above_the_threshold() -> None:
    gate = SuccessGated((4, 8, 12), threshold=0.5, window=2)
    history = outcomes(0.9, 0.0, 0.4, 0.6, 0.9, 0.9, 0.9)
    # means of two: step 1: .45, 2: .2, 3: .5 → opens for step 4; the window restarts: step 4 alone, 5: .9 → opens for step 6
    assert [turns_at(gate, step, history) for step in range(8)] == [4, 4, 4, 4, 8, 8, 12, 12]


def test_the_gate_ignores_steps_without_episodes_and_weighs_by_episodes() -> None:
    gate = SuccessGated((4, 8), threshold=0.5, window=2)
    assert turns_at(gate, 3, outcomes(0.9, None, 0.1)) == 8
    # (1 + 1)/(1 + 9) = 0.2, although the mean of the two rates is above 0.5
    assert turns_at(gate, 2, [StepOutcome(0, 1, 1), StepOutcome(1, 9, 1)]) == 4


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=30), st.integers(0, 30), st.integers(1, 4))
def test_only_the_past_counts_and_the_horizon_never_shrinks(rates: list[float | None], step: int, window: int) -> None:
    gate = SuccessGated((2, 4, 8, 16), threshold=0.5, window=window)
    history = outcomes(*rates)
    assert turns_at(gate, step, history) == turns_at(gate, step, history[:step])
    path = [turns_at(gate, s, history) for s in range(len(rates) + 1)]
    assert all(b >= a for a, b in itertools.pairwise(path))


def test_each_environment_has_its_own_schedule_and_its_own_history() -> None:
    config = msgspec.convert(
        {
            "default": {"use": "fixed", "turns": 3},
            "environments": {
                "game:a": {"use": "stepwise", "turns": [5, 10], "every": 2},
                "game:b": {"use": "success_gated", "turns": [5, 10], "threshold": 0.5, "window": 1},
            },
        },
        HorizonConfig,
    )
    history = {"game:a": outcomes(0.0), "game:b": outcomes(1.0)}
    envs = ("game:x", "game:a", "game:b")
    assert [turns_at(schedule_of(config, env), 1, history.get(env, ())) for env in envs] == [3, 5, 10]


@pytest.mark.parametrize(
    "bad",
    [
        {"use": "fixed", "turns": 0},
        {"use": "stepwise", "turns": [], "every": 1},
        {"use": "stepwise", "turns": [1], "every": 0},
        {"use": "success_gated", "turns": [1], "threshold": 0.0},
        {"use": "fixed", "turns": 1, "every": 2},
    ],
)
def test_bad_schedules_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="horizon: "):
        schedule_of(HorizonConfig(bad), "game:a")


def test_bad_calls_are_refused() -> None:
    with pytest.raises(UsageError):
        turns_at(Fixed(1), -1)
    with pytest.raises(UsageError):
        turns_at(SuccessGated((1, 2), 0.5), 3, [StepOutcome(1, 1, 1), StepOutcome(0, 1, 1)])


@pytest.mark.parametrize(
    "schedule",
    [Fixed(4), Stepwise((6, 20, 13), 2), Linear(3, 9, 4), Linear(9, 3, 4), SuccessGated((2, 8, 4), threshold=0.5, window=1)],
)
def test_the_longest_horizon_is_the_most_that_any_step_allows(schedule: Any) -> None:
    assert schedule.longest == max(turns_at(schedule, step, outcomes(*[1.0] * 9)) for step in range(10))
