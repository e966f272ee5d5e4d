import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import UsageError
from palestra.evaluation.comparison import compare, holm
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import Score

EVALUATIONS = 1000


def play(rng: np.random.Generator, chances: dict[tuple[str, int], float], repeats: int) -> list[Score]:
    return [
        Score((family,), task, float(hit)) for (family, task), chance in chances.items() for hit in rng.random(repeats) < chance
    ]


def difficulties(rng: np.random.Generator, means: list[float], tasks: int) -> dict[tuple[str, int], float]:
    return {
        (str(family), task): float(chance)
        for family, mean in enumerate(means)
        for task, chance in enumerate(rng.beta(2 * mean, 2 * (1 - mean), tasks))
    }


@pytest.mark.parametrize(("means", "tasks", "repeats"), [([0.5], 30, 4), ([0.1, 0.4, 0.9], 15, 3), ([0.05], 60, 2)])
@pytest.mark.slow
def test_under_no_difference_at_most_6_percent_are_called_significant(means: list[float], tasks: int, repeats: int) -> None:
    rng = derive(0, "no difference", tasks)
    false_finds = uncovered = 0
    for _ in range(EVALUATIONS):
        chances = difficulties(rng, means, tasks)
        result = compare(play(rng, chances, repeats), play(rng, chances, repeats), resamples=1000)
        false_finds += result.p_value <= 0.05
        uncovered += not result.difference.low <= 0.0 <= result.difference.high
    assert false_finds / EVALUATIONS <= 0.06
    assert uncovered / EVALUATIONS <= 0.07


@pytest.mark.slow
def test_the_smallest_visible_difference_is_found_four_times_out_of_five() -> None:
    rng = derive(0, "power")
    found, visible = 0, []
    for _ in range(400):
        chances = {("f", task): float(rng.uniform(0.2, 0.6)) for task in range(60)}
        better = {key: chance + 0.131 for key, chance in chances.items()}
        result = compare(play(rng, better, 4), play(rng, chances, 4), resamples=1000)
        found += result.p_value <= 0.05
        visible.append(result.smallest_visible)
    # The true difference of 0.131 is the one that the runs say they would just see: there the power is 0.8 by definition.
    assert np.mean(visible) == pytest.approx(0.131, abs=0.003)
    assert 0.75 <= found / 400 <= 0.85


def test_pairing_sees_what_two_separate_intervals_cannot() -> None:
    values = [task / 50 for task in range(40)]
    better = [Score(("f",), task, value + 0.01 * (1 + task % 2)) for task, value in enumerate(values)]
    worse = [Score(("f",), task, value) for task, value in enumerate(values)]
    result = compare(better, worse)
    assert result.p_value < 0.001
    assert 0 < result.difference.low < result.difference.high < 0.05


def test_identical_runs_differ_by_nothing_but_not_for_certain() -> None:
    run = [Score(("f",), task, 1.0) for task in range(100)]
    result = compare(run, run)
    assert result.p_value == 1.0
    assert result.difference.low < 0.0 < result.difference.high < 0.05
    assert 0.0 < result.smallest_visible < 0.05


def test_few_tasks_are_enumerated() -> None:
    result = compare([Score((), task, 1.0) for task in range(5)], [Score((), task, 0.0) for task in range(5)])
    assert result.p_value == pytest.approx(2 / 32)
    assert result.families == {}


def test_only_common_tasks_count_and_the_others_are_counted() -> None:
    first, second = ([Score(("f",), task, 1.0) for task in tasks] for tasks in ((0, 1, 2), (2, 3)))
    result = compare(first, second)
    assert (result.difference.tasks, result.only_first, result.only_second) == (1, 2, 1)
    with pytest.raises(UsageError, match="no scored task in common"):
        compare([Score((), 0, 1.0)], [Score((), 1, 1.0)])


def test_families_are_corrected_together() -> None:
    rng = derive(0, "families")
    first = [Score((family,), task, float(family == "a")) for family in "abc" for task in range(20)]
    second = [Score((family,), task, float(rng.random() < 0.5) * (family != "a")) for family in "abc" for task in range(20)]
    result = compare(first, second)
    assert result.families["a"].corrected_p_value == pytest.approx(3 * result.families["a"].p_value)
    assert all(part.corrected_p_value >= part.p_value for part in result.families.values())


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_lies_between_nothing_and_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for plain, found in zip(p_values, corrected, strict=True):
        assert plain <= found <= 1.0
    ranked = [corrected[index] for index in sorted(range(len(p_values)), key=p_values.__getitem__)]
    assert ranked == sorted(ranked)
    assert corrected[p_values.index(min(p_values))] == min(1.0, min(p_values) * len(p_values))
