"""The pages on studies show what the results say: filling them again changes nothing."""

import shutil
from pathlib import Path

import pytest

from palestra.evaluation.comparison import compare
from palestra.statistics import Score
from palestra.studies import load_study, read_results
from palestra.studies.page import fill_page
from tests.docs.test_pages import ROOT

PAGES = [
    "design/learning.md",
    "tutorials/06-train-your-agent.md",
    *(f"results/{name}.md" for name in ("baselines", "methods", "test-time", "training-options", "worlds-training")),
]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_and_its_figures_are_those_of_the_results(page: str, tmp_path: Path) -> None:
    studies = ROOT / "docs" / "results" / "studies"
    shutil.copytree(studies, tmp_path / "results" / "studies")
    copy = tmp_path / page
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "docs" / page, copy)
    folders = fill_page(copy)
    assert copy.read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8")
    for folder in folders:
        for figure in folder.resolve().glob("*.svg"):
            assert figure.read_bytes() == (studies / folder.name / figure.name).read_bytes(), figure.name


@pytest.mark.parametrize("study", ["agent", "craft"])
def test_the_reward_improves_with_every_seed(study: str) -> None:
    folder = ROOT / "docs" / "results" / "studies" / study
    runs = read_results(folder, load_study(folder))
    assert [one.seed for one in runs] == [0, 1, 2]
    for one in runs:
        after, before = (
            [Score((), task, value) for task, value in enumerate(side["reward"])] for side in (one.after, one.before)
        )
        assert compare(after, before, bounds=(-0.1, 1.0)).difference.low > 0  # an action that is no move costs 0.1
