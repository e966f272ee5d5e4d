"""The file of a study: what it accepts, and what it says otherwise."""

from pathlib import Path

import pytest

from palestra.errors import UsageError
from palestra.studies import Cell, load_study

GOOD = """
question = "Which is better?"
seeds = [0, 1]
held_out = 20
overrides = ["steps=2"]

[environments.guess]
recipe = "cpu/guess"
overrides = ["play.tasks=4"]

[environments.maze]
recipe = "cpu/maze"
held_out = 10

[arms]
ReBN = ["advantage.method=rebn"]
"γ = 0.9" = ["advantage.discount=0.9"]
"""


def written(folder: Path, text: str) -> Path:
    (folder / "study.toml").write_text(text, encoding="utf-8")
    return folder


def test_a_study_has_every_combination_seed_by_seed(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, GOOD))
    cells = list(study.cells())
    assert len(cells) == 8
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4
    assert cells[1] == Cell("guess", "γ = 0.9", 0)
    assert cells[1].name == "guess/γ=0.9-0"


def test_overrides_are_applied_from_the_study_to_the_arm(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, GOOD))
    cell = Cell("guess", "ReBN", 1)
    assert study.overrides_of(cell) == ["seed=1", "steps=2", "play.tasks=4", "advantage.method=rebn"]
    assert study.held_out_of("guess") == 20
    assert study.held_out_of("maze") == 10


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "seeds = []", "seeds is empty"),
        ("seeds = [0, 1]", "seeds = [1, 1]", "a seed twice"),
        ("held_out = 20", "held_out = 0", "held_out"),
        ("held_out = 20", "held_outt = 20", "held_outt"),
        ("seeds = [0, 1]", 'seeds = [0]\nmeasure = "fun"', 'names "fun"'),
        ("seeds = [0, 1]", 'seeds = [0]\nplayers = ["best"]', 'names "best"'),
        ("ReBN = [", '"γ=0.9" = [', "must differ"),
        ("ReBN = [", "ReBN = 3 #", "arms"),
        ("seeds = [0, 1]", 'seeds = [0]\ncompare = [{first = "ReBN", second = "GRPO"}]', 'names "GRPO"'),
        ("seeds = [0, 1]", 'seeds = [0]\nequal_seconds = "reward"', "pairs in compare, which is empty"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_study(written(tmp_path, GOOD.replace(old, new)))


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a study"):
        load_study(tmp_path)
