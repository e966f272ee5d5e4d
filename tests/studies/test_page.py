"""The page of a study is made from its results alone."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.studies.results import result

from palestra.errors import UsageError
from palestra.studies import Cell, load_study
from palestra.studies.page import fill_page, study_section
from palestra.studies.results import Curves, curves_of, played_path, read_results, result_path, write_result

STUDY = """
question = "Which is better?"
seeds = [0, 1]
held_out = 20
players = ["random"]
chosen = "Learning rates 1e-3 and 3e-3 were tried with seed 7."
compare = [{first = "ReBN", second = "GRPO"}]

[environments.guess]
recipe = "cpu/guess"
optimum = {success = 1.0}

[arms]
ReBN = []
GRPO = []
"""


def keep(study: Path, arm: str, seed: int, after: float = 1.0, seconds: list[float] | None = None, **curves: Any) -> None:
    """Write the result of a run."""
    run = result(arm=arm, seed=seed, after=after)
    if seconds is not None:
        run = replace(run, made=replace(run.made, step_seconds=seconds))
    write_result(result_path(study, run.cell), replace(run, **curves))


def change(study: Path, *replaced: tuple[str, str]) -> None:
    """Replace texts in the settings of a study, each once."""
    text = (study / "study.toml").read_text(encoding="utf-8")
    for old, new in replaced:
        text = text.replace(old, new, 1)
    (study / "study.toml").write_text(text, encoding="utf-8")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "studies" / "guess"
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    for arm, seed, after in (("ReBN", 0, 1.0), ("ReBN", 1, 0.5), ("GRPO", 0, 0.25)):
        keep(folder, arm, seed, after)
    write_result(played_path(folder, "guess", "random"), result().before)
    return folder


def test_every_mean_stands_before_its_seeds(study: Path) -> None:
    text = study_section(study, study)
    assert "0.750 (1.000 · 0.500)" in text
    assert "| 0, 1 |" in text
    assert "| guess | GRPO | 0.000 | 0.250 | +0.250 [" in text
    assert "| 3.00 | 4 | 0 |" in text  # one seed: a value, not a mean


def test_the_section_names_where_its_figures_come_from(study: Path) -> None:
    text = study_section(study, study)
    made = ("runs: 3 of 4", "a machine", "2026-11-16", "commit: abc", "held-out tasks: 20", "with seed 7", "A perfect player")
    for part in (*made, "| guess | random | 0.000"):
        assert part in text


def test_pairs_use_the_seeds_that_both_arms_have(study: Path) -> None:
    assert "ReBN − GRPO, success: +0.750 [" in study_section(study, study)
    assert "; guess by seed +0.750\n" in study_section(study, study) + "\n"


def test_pairs_with_three_seeds_have_an_interval_over_seeds(study: Path) -> None:
    change(study, ("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    for seed in range(3):
        keep(study, "ReBN", seed, 0.5 + 0.05 * seed)
        keep(study, "GRPO", seed, 0.0)
    text = study_section(study, study)
    low, high = re.findall(r"guess by seed \+0\.500, \+0\.550, \+0\.600, over seeds \[\+(.*), \+(.*)\]", text)[0]
    half = 4.303 * 0.05 / 3**0.5  # Student's t with two degrees of freedom; bounds move the interval a little inwards
    assert (float(low), float(high)) == pytest.approx((0.55 - half, 0.55 + half), abs=0.015)


def test_a_task_counts_once_however_many_seeds_play_it(study: Path) -> None:
    def intervals(seed: int) -> list[str]:
        """The interval of the gain of ReBN, and that of the pair, with results of one more seed."""
        keep(study, "ReBN", seed, 0.5)
        keep(study, "GRPO", seed, 0.0)
        text = study_section(study, study)
        rows = (r"\| guess \| ReBN \| ", "- ReBN − GRPO, success")
        return [re.findall(rf"^{row}.*?(\[.*?\])", text, re.MULTILINE)[0] for row in rows]

    result_path(study, Cell("guess", "ReBN", 1)).unlink()
    alone = intervals(0)
    assert intervals(1) == alone  # the same episodes with another seed: no more evidence about other tasks


def test_a_page_is_filled_between_its_marks_and_filling_again_changes_nothing(study: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n<!-- study: studies/guess -->\nold\n<!-- end of study -->\n\nrest\n", encoding="utf-8")
    assert fill_page(page) == [tmp_path / "studies" / "guess"]
    first = page.read_text(encoding="utf-8")
    assert "old" not in first
    assert "](studies/guess/guess.svg)" in first
    assert first.endswith("<!-- end of study -->\n\nrest\n")
    assert (study / "guess.svg").read_text(encoding="utf-8").startswith("<svg")
    fill_page(page)
    assert page.read_text(encoding="utf-8") == first


def test_a_step_without_an_update_has_no_entropy_and_is_left_out_of_the_figure(study: Path, tmp_path: Path) -> None:
    steps: list[dict[str, float]] = [{"success": 0.0, "entropy": 1.0}, {"success": 0.5}, {"success": 1.0, "entropy": 0.5}]
    curves = curves_of(steps, ["success", "entropy", "tokens"])
    assert curves == {"success": [0.0, 0.5, 1.0], "entropy": [1.0, None, 0.5]}
    page = tmp_path / "page.md"
    page.write_text("<!-- study: studies/guess -->\n<!-- end of study -->\n", encoding="utf-8")
    every: list[Curves] = [{}, {"entropy": [None]}, curves]
    for kept in every:
        keep(study, "ReBN", 0, curves=kept)
        assert read_results(study, load_study(study))[0].curves == kept
        fill_page(page)
    assert "entropy" in (study / "guess.svg").read_text(encoding="utf-8")


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n", encoding="utf-8")
    with pytest.raises(UsageError, match="names no study"):
        fill_page(page)


def test_a_study_without_results_says_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    assert "palestra study run" in study_section(tmp_path, tmp_path)


def test_a_result_in_the_wrong_place_is_refused(study: Path) -> None:
    write_result(result_path(study, Cell("guess", "GRPO", 1)), result(arm="GRPO", seed=0))
    with pytest.raises(UsageError, match="not of guess, GRPO, seed 1"):
        study_section(study, study)


def test_ranks_are_shown_when_every_run_is_there(study: Path) -> None:
    change(study, ("GRPO = []", 'GRPO = []\nRLOO = []\n[environments.maze]\nrecipe = "cpu/maze"'))
    assert "Ranks by success" not in study_section(study, study)
    for cell in load_study(study).cells():
        write_result(result_path(study, cell), result(*cell, after=0.25 if cell.arm == "RLOO" else 0.5))
    text = study_section(study, study)
    assert "Ranks by success over 2 environments, 2 seeds each" in text
    assert "| RLOO | 3.00 [3.00, 3.00] | 1.00 [1.00, 1.00] |" in text
    assert "](performance-profile.svg)" in text
    assert (study / "performance-profile.svg").read_text(encoding="utf-8").count("<polygon") == 3


def test_the_page_shows_when_each_run_reaches_a_score(study: Path) -> None:
    change(study, ("held_out", "reach = 0.3\nheld_out"))
    keep(study, "ReBN", 1, 0.5, [2.0, 3.0, 5.0], curves={"success": [0.0, 0.5, 1.0]})
    keep(study, "ReBN", 0, curves={"success": [0.0, 0.0, 0.0]})
    text = study_section(study, study)
    assert "| environment | arm | steps until success 0.3 | seconds | seeds |" in text
    assert "| guess | ReBN | never · 3 | never · 10 | 0, 1 |" in text  # the mean of five steps, the first of them repeated
    assert "![success of guess by seconds of training](guess-seconds.svg)" in text
    assert ">seconds<" in (study / "guess-seconds.svg").read_text(encoding="utf-8")


def test_arms_are_compared_after_equal_seconds(study: Path) -> None:
    change(study, ("held_out", 'equal_seconds = "evaluation/score"\nheld_out'), ("GRPO = []", "GRPO = []\nthird = []"))

    def timed(arm: str, seed: int, seconds: float, curve: list[float | None]) -> None:
        keep(study, arm, seed, seconds=[seconds] * 4, curves={"evaluation/score": curve})

    timed("ReBN", 0, 1.0, [None, 0.25, None, 0.75])
    timed("ReBN", 1, 2.0, [None, 0.25, None, 0.75])
    timed("GRPO", 0, 2.0, [None, 0.1, None, 0.6])
    assert "Left out, because a run has no evaluation/score by then: ReBN − GRPO, guess, seed 1" in study_section(study, study)
    timed("GRPO", 1, 1.0, [None, 0.1, None, 0.6])
    timed("third", 1, 0.1, [None, None, None, 0.6])  # is in no pair, so that it ends first does not matter
    text = study_section(study, study)
    row = "| guess | ReBN − GRPO | 0.500 (0.750 · 0.250) | 0.350 (0.100 · 0.600) | +0.150 ["
    assert row in text
    assert "Left out" not in text
    assert ">0.8<" in (study / "guess-seconds.svg").read_text(encoding="utf-8")  # few values are drawn as they are
    timed("GRPO", 1, 5.0, [None, 0.1, None, 0.6])
    text = study_section(study, study)
    assert "| guess | ReBN − GRPO | 0.750 | 0.100 | +0.650 [" in text
    assert "by then: ReBN − GRPO, guess, seed 1" in text
