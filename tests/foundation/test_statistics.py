import itertools
import math
from collections.abc import Callable
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.foundation.statistics import (
    MissingScore,
    Score,
    TaskMeans,
    bootstrap_means,
    distribution,
    mean_interval,
    mean_of_last,
    partial_mean,
    pass_all_k,
    pass_at_k,
    student_quantile,
)

unit = st.floats(0.0, 1.0)


def scores(values: list[list[float]], family: str = "f") -> list[Score]:
    return [Score((family,), task, value) for task, repeats in enumerate(values) for value in repeats]


# ------------------------------------------------------------------------------------------------------------------ means


def test_families_share_equally_and_so_do_the_environments_inside_them() -> None:
    sample = TaskMeans.of(
        [Score(("a", "a-easy"), n, 1.0) for n in range(10)]
        + [Score(("a", "a-hard"), n, 0.0) for n in range(2)]
        + [Score(("b", "b"), n, 0.0) for n in range(3)]
    )
    assert sample.mean == pytest.approx(0.25)
    assert sample.shares.sum() == pytest.approx(1.0)


def test_standard_error_by_hand() -> None:
    spread = TaskMeans.of(scores([[0.0], [0.0], [1.0], [1.0]])).spread
    assert spread.error == pytest.approx(math.sqrt((1 / 3) / 4))
    assert spread.freedom == pytest.approx(3.0)
    assert TaskMeans.of(scores([[0.0], [1.0]])).spread.error == pytest.approx(0.5)


# -------------------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize(("value", "tasks"), [(0.0, 40), (1.0, 40), (0.0, 1), (0.5, 5)])
def test_no_spread_is_no_certainty(value: float, tasks: int) -> None:
    estimate = mean_interval(scores([[value] * 4] * tasks))
    unseen = 1 - 0.025 ** (1 / tasks)
    assert estimate.low == pytest.approx(value * (1 - unseen))
    assert estimate.high == pytest.approx(value + unseen * (1 - value))


@given(st.lists(st.lists(unit, min_size=1, max_size=4), min_size=1, max_size=12))
def test_the_interval_holds_the_mean_inside_the_bounds_and_has_a_width(values: list[list[float]]) -> None:
    estimate = mean_interval(scores(values))
    assert -1e-9 <= estimate.low <= estimate.mean <= estimate.high <= 1.0 + 1e-9
    assert estimate.low < estimate.high


@given(st.lists(st.lists(st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0]), min_size=1, max_size=3), min_size=2, max_size=8))
def test_the_interval_follows_a_change_of_scale(values: list[list[float]]) -> None:
    plain = mean_interval(scores(values))
    scaled = mean_interval(scores([[5 * value - 2 for value in task] for task in values]), bounds=(-2.0, 3.0))
    assert (scaled.low, scaled.high) == pytest.approx((5 * plain.low - 2, 5 * plain.high - 2), abs=1e-6)


@given(st.lists(unit, min_size=2, max_size=20))
def test_a_higher_level_is_wider(values: list[float]) -> None:
    task_values = [[value] for value in values]
    narrow, wide = mean_interval(scores(task_values), level=0.8), mean_interval(scores(task_values), level=0.99)
    assert wide.low <= narrow.low + 1e-12
    assert narrow.high <= wide.high + 1e-12


# --------------------------------------------------------------------------------------------------- coverage, simulated


def draw(rng: np.random.Generator, families: list[float], tasks: int, repeats: int, alike: float) -> list[Score]:
    """One evaluation: each family has its own difficulty, each task its own inside it, repeats are coin tosses."""
    out = []
    for family, mean in enumerate(families):
        for task, chance in enumerate(rng.beta(mean * alike, (1 - mean) * alike, tasks)):
            out += [Score((str(family),), task, float(hit)) for hit in rng.random(repeats) < chance]
    return out


EVALUATIONS = 1000
SETTINGS = {
    "one family": ([0.5], 40, 4, 2.0),
    "eight families": ([0.02, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.98], 10, 4, 2.0),
    "few tasks": ([0.4], 15, 4, 2.0),
    "rarely solved": ([0.05], 50, 4, 2.0),
    "nearly always solved": ([0.93], 60, 8, 3.0),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.slow
def test_nominal_95_percent_covers_93_to_97(setting: str) -> None:
    families, tasks, repeats, alike = SETTINGS[setting]
    rng = derive(0, "coverage", setting)
    truth = float(np.mean(families))
    covered = 0
    for _ in range(EVALUATIONS):
        estimate = mean_interval(draw(rng, families, tasks, repeats, alike))
        covered += estimate.low <= truth <= estimate.high
    assert 0.93 <= covered / EVALUATIONS <= 0.97


@pytest.mark.slow
def test_the_bootstrap_t_covers_costs() -> None:
    rng = derive(0, "coverage", "costs")
    truth, covered = math.exp(0.5**2 / 2 + 0.3**2 / 2), 0
    for _ in range(EVALUATIONS):
        typical = rng.normal(0.0, 0.5, 60)
        sample = [Score((), task, math.exp(mu + rng.normal(0, 0.3))) for task, mu in enumerate(typical) for _ in range(3)]
        estimate = mean_interval(sample, bounds=None, resamples=1000)
        covered += estimate.low <= truth <= estimate.high
    assert 0.93 <= covered / EVALUATIONS <= 0.97


# ----------------------------------------------------------------------------------------------------------- the quantiles


@pytest.mark.parametrize(
    ("probability", "freedom", "expected"),
    [(0.975, 1, 12.7062047), (0.975, 2, 4.3026527), (0.975, 10, 2.2281389), (0.995, 30, 2.7499957), (0.8, 5, 0.9195438)],
)
def test_students_t_against_tables(probability: float, freedom: float, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, abs=1e-6)
    assert student_quantile(1 - probability, freedom) == pytest.approx(-expected, abs=1e-6)


def test_students_t_is_continuous_where_the_method_changes_and_becomes_normal() -> None:
    assert student_quantile(0.975, 400.0) == pytest.approx(student_quantile(0.975, 400.0 + 1e-9), abs=1e-7)
    assert student_quantile(0.975, 1e9) == pytest.approx(NormalDist().inv_cdf(0.975))


# ------------------------------------------------------------------------------------------------------ pass@k and pass^k


def all_outcomes() -> list[tuple[int, int, int]]:
    return [(tries, hits, k) for tries in range(1, 9) for hits in range(tries + 1) for k in range(1, tries + 1)]


@pytest.mark.parametrize(("tries", "hits", "k"), all_outcomes())
def test_pass_at_k_and_pass_all_k_equal_enumeration(tries: int, hits: int, k: int) -> None:
    outcomes = [True] * hits + [False] * (tries - hits)
    choices = list(itertools.combinations(outcomes, k))
    assert pass_at_k(tries, hits, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)
    assert pass_all_k(tries, hits, k) == pytest.approx(sum(map(all, choices)) / len(choices), abs=1e-12)


# --------------------------------------------------------------------------------------------------------- distributions


def test_distribution_by_hand() -> None:
    found = distribution([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert (found.count, found.mean, found.total) == (5, 3.0, 15.0)
    assert found.quantiles["0.5"] == 3.0
    assert found.quantiles["0.95"] == pytest.approx(4.8)
    assert distribution([]) is None


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=7), st.data())
def test_the_best_of_k_is_the_mean_over_all_choices(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    each = [max(chosen) for chosen in itertools.combinations(scores, k)]
    assert mean_of_last(sorted(scores), k) == pytest.approx(sum(each) / len(each), abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_the_best_of_k_successes_is_pass_at_k(solved: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(solved)))
    assert mean_of_last(sorted(map(float, solved)), k) == pytest.approx(pass_at_k(len(solved), sum(solved), k))


def test_the_range_of_a_partial_mean_is_that_of_the_worst_and_the_best_that_may_come() -> None:
    drawn = [Score(("f",), task, 1.0 if task % 2 else 0.0) for task in range(20)]
    missing = [MissingScore(("f",), 20 + task, (0.0, 1.0)) for task in range(5)]
    found = partial_mean(drawn, missing)
    assert found is not None
    worst, best = ([*drawn, *(Score(one.path, one.task, value) for one in missing)] for value in (0.0, 1.0))
    assert (found.low, found.high) == (mean_interval(worst).low, mean_interval(best).high)
    assert found.mean == 0.5
    assert (found.tasks, found.episodes, found.missing) == (20, 20, 5)
    alone = partial_mean(drawn, [])
    assert alone is not None
    assert alone.low is not None
    assert alone.high is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < alone.low < alone.high < found.high
    unknown = partial_mean(drawn, [MissingScore(("f",), 20, None), *missing])
    assert unknown is not None
    assert (unknown.low, unknown.high, unknown.missing) == (None, None, 6)
    assert partial_mean([], missing) is None


def test_the_errors_of_redrawn_pairs_are_those_of_two_tasks() -> None:
    means, errors = bootstrap_means(TaskMeans.of(scores([[0.0], [1.0]])), 200, 0)
    assert set(zip(means.tolist(), errors.tolist(), strict=True)) == {(0.0, 0.0), (0.5, 0.5), (1.0, 0.0)}


def test_repeats_of_a_task_are_averaged() -> None:
    drawn = scores([[0.0, 1.0, 0.5], [1.0], [0.25, 0.75]])
    assert TaskMeans.of(drawn).means.tolist() == [0.5, 1.0, 0.5]
    assert mean_interval(drawn).mean == pytest.approx(2 / 3)
    assert mean_interval(drawn).episodes == 6
    assert len(TaskMeans.of([Score(("a",), 0, 1.0), Score(("b",), 0, 0.0)]).means) == 2, "one number in two environments"
    unknown = mean_interval(scores([[3.0], [3.0]]), bounds=None)
    assert (unknown.low, unknown.high) == (-math.inf, math.inf)
    lone = mean_interval([Score((f"f{n}",), 0, float(n % 2)) for n in range(8)])
    assert lone.high - lone.low > 0.4, "strata of one task each"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TaskMeans.of(scores([[math.nan]])), "finite"),
        (lambda: TaskMeans.of(scores([[math.inf]])), "finite"),
        (lambda: mean_interval([]), "no episode finished"),
        (lambda: mean_interval(scores([[2.0], [0.0]])), "do not fit the bounds"),
        *(
            (partial(mean_interval, scores([[0.0], [1.0]]), level=level), "level must lie between 0 and 1")
            for level in (0.0, 1.0, -0.5, 95.0)
        ),
        *(
            (partial(share, *counts), ".")
            for share in (pass_at_k, pass_all_k)
            for counts in ((4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1))
        ),
    ],
)
def test_wrong_scores_levels_and_counts_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_the_bootstrap_redraws_inside_each_family() -> None:
    """A family whose tasks all score the same adds nothing to the spread."""
    certain = [Score(("certain",), task, 1.0) for task in range(8)]
    spread = [Score(("spread",), task, float(task % 2)) for task in range(8)]
    means, errors = bootstrap_means(TaskMeans.of([*certain, *spread]), 400, 0)
    alone, own = bootstrap_means(TaskMeans.of(spread), 400, 0)
    assert set(np.round(means * 16) % 1) == {0.0}
    assert means.min() >= 0.5
    assert means.max() <= 1.0
    assert means.std() == pytest.approx(alone.std() / 2, rel=0.2)
    assert errors.mean() == pytest.approx(own.mean() / 2, rel=0.1)


def test_the_default_interval_of_unbounded_scores_is_that_of_seed_0() -> None:
    drawn = scores([[float(n)] for n in (1, 5, 2, 8, 3, 9)])
    found = [mean_interval(drawn, bounds=None, **chosen) for chosen in ({}, {"seed": 0}, {"seed": 1})]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_the_interval_of_unbounded_scores_scales_with_them(factor: float) -> None:
    values = [1.0, 5.0, 2.0, 8.0, 3.0, 9.0]
    one, other = (mean_interval(scores([[value * by] for value in values]), bounds=None) for by in (1.0, factor))
    assert (other.low, other.high) == pytest.approx((one.low * factor, one.high * factor))
    assert one.low < one.mean < one.high
