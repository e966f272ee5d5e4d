"""Scores against turns and samples."""

from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.studies.results import result

from palestra.errors import UsageError
from palestra.statistics import pass_at_k
from palestra.studies import load_study
from palestra.studies.budgets import best_of, spent
from palestra.studies.page import study_section
from palestra.studies.results import BudgetScores, RunResult, result_path, write_result

STUDY = """
question = "Do turns and samples help?"
seeds = [0, 1]
held_out = 2
measure = "reward"

[environments.guess]
recipe = "cpu/guess"

[budgets]
turns = [1, 4]
samples = 3

[arms]
ReBN = []
"""


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=7), st.data())
def test_the_best_of_k_is_the_mean_over_all_choices(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    each = [max(chosen) for chosen in combinations(scores, k)]
    assert best_of(scores, k) == pytest.approx(sum(each) / len(each), abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.data())
def test_the_best_of_k_successes_is_pass_at_k(solved: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(solved)))
    assert best_of([float(one) for one in solved], k) == pytest.approx(pass_at_k(len(solved), sum(solved), k))


def played(seed: int) -> RunResult:
    before = BudgetScores({"1": [0.0, 0.0], "4": [0.0, 1.0]}, [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    after = BudgetScores({"1": [0.0, 1.0], "4": [1.0, 1.0]}, [[1.0, 0.5, 1.0], [0.0, 1.0, 1.0]])
    return msgspec.structs.replace(result(seed=seed, tasks=2), budgets={"before": before, "after": after})


def test_means_are_over_tasks_and_seeds() -> None:
    found = spent([played(0), played(1)])
    assert {kind: {side: list(row) for side, row in sides.items()} for kind, sides in found.items()} == {
        "turns": {"before": [1, 4], "ReBN": [1, 4]},
        "samples": {"before": [1, 2, 3], "ReBN": [1, 2, 3]},
    }
    assert found["turns"]["ReBN"][1].estimate.mean == 0.5
    assert found["samples"]["before"][3].by_seed == [0.5, 0.5]
    assert found["samples"]["before"][1].estimate.mean == pytest.approx(1 / 6)


def test_the_page_shows_every_budget_with_its_seeds(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    for seed in (0, 1):
        one = played(seed)
        write_result(result_path(tmp_path, one.cell), one)
    shown = study_section(tmp_path, tmp_path)
    assert "| guess: turns | 1 | 4 |" in shown
    assert "| guess: samples | 1 | 2 | 3 |" in shown
    assert "(0.500 · 0.500)" in shown
    assert "guess-budgets.svg" in shown
    assert (tmp_path / "guess-budgets.svg").read_text(encoding="utf-8").startswith("<svg")


def test_budgets_of_a_study_that_compares_turns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace('"reward"', '"turns"'), encoding="utf-8")
    with pytest.raises(UsageError, match="budgets is about scores"):
        load_study(tmp_path)
