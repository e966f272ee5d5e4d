"""Scores against turns and samples."""

from pathlib import Path

import msgspec
import pytest
from tests.studies.results import result

from palestra.errors import UsageError
from palestra.studies import load_study
from palestra.studies.budgets import spent
from palestra.studies.page import study_section
from palestra.studies.results import BudgetScores, RunResult, result_path, write_result

STUDY = """
question = "Do turns and samples help?"
seeds = [0, 1]
held_out = 2
measure = "reward"
environments.guess.recipe = "cpu/guess"
budgets = {turns = [1, 4], samples = 3}
arms.ReBN = []
"""


def played(seed: int) -> RunResult:
    before = BudgetScores({"1": [0.0, 0.0], "4": [0.0, 1.0]}, [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    after = BudgetScores({"1": [0.0, 1.0], "4": [1.0, 1.0]}, [[1.0, 0.5, 1.0], [0.0, 1.0, 1.0]])
    return msgspec.structs.replace(result(seed=seed, tasks=2), budgets={"before": before, "after": after})


def test_means_are_over_tasks_and_seeds() -> None:
    scores = spent([played(0), played(1)])
    assert {kind: {side: list(row) for side, row in sides.items()} for kind, sides in scores.items()} == {
        "turns": {"before": [1, 4], "ReBN": [1, 4]},
        "samples": {"before": [1, 2, 3], "ReBN": [1, 2, 3]},
    }
    assert scores["turns"]["ReBN"][1].estimate.mean == 0.5
    assert scores["samples"]["before"][3].by_seed == [0.5, 0.5]
    assert scores["samples"]["before"][1].estimate.mean == pytest.approx(1 / 6)


def test_the_page_shows_every_budget_with_its_seeds(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    for seed in (0, 1):
        run = played(seed)
        write_result(result_path(tmp_path, run.cell), run)
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
