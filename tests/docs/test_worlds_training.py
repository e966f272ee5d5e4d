"""The page on training in the worlds shows the figures of the runs that are kept, and the model that crafts has improved."""

import json
from typing import Any

import pytest

from palestra.evaluation.comparison import compare
from palestra.statistics import Estimate, Score
from tests.docs.test_pages import ROOT

STUDIES = ("craft", "babyai", "desk")


def runs_of(study: str) -> list[dict[str, Any]]:
    folder = ROOT / "docs" / "design" / "learning" / study
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def difference(runs: list[dict[str, Any]]) -> Estimate:
    """After − before in reward, paired by task, with the seeds as strata."""
    after, before = (
        [Score((str(one["seed"]),), task, value) for one in runs for task, value in enumerate(one[when]["reward"])]
        for when in ("after", "before")
    )
    return compare(after, before).difference


@pytest.mark.parametrize("study", STUDIES)
def test_the_page_shows_the_difference_of_the_runs(study: str) -> None:
    runs = runs_of(study)
    found = difference(runs)
    page = (ROOT / "docs" / "results" / "worlds-training.md").read_text(encoding="utf-8")
    shown = f"mean reward (seeds: {len(runs)}): {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    assert shown in page.partition(f"<!-- {study} -->")[2].partition(f"<!-- end of {study} -->")[0]


def test_crafting_improves() -> None:
    runs = runs_of("craft")
    assert sorted(one["seed"] for one in runs) == [0, 1, 2]
    assert not any(one["overrides"] for one in runs)
    assert difference(runs).low > 0
