"""Recipes: TOML, dotted overrides, and mistakes told in the user's words."""

from pathlib import Path

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.training.config import Anneal, TrainConfig, load_config
from palestra.training.horizon import Stepwise

pytestmark = pytest.mark.torch

RECIPE = """
steps = 10

[model]
path = "somewhere"

[envs]
"game:GuessTheNumber-v0-easy" = 1.0

[horizon.default]
kind = "stepwise"
turns = [5, 10]
every = 100

[advantage]
method = "grpo"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_is_resolved_and_can_be_read_back(recipe: Path) -> None:
    config = load_config(recipe)
    assert config.advantage.method == "grpo"
    assert config.horizon is not None
    assert config.horizon.default == Stepwise((5, 10), 100)
    assert msgspec.json.decode(msgspec.json.encode(config), type=TrainConfig) == config


def test_overrides_are_dotted_names(recipe: Path) -> None:
    overrides = ["learner.learning_rate=1e-5", "advantage.method=rebn", "model.lora.rank=4", "entropy.start=0.1", "seed=7"]
    config = load_config(recipe, overrides)
    assert config.learner.learning_rate == 1e-5
    assert config.advantage.method == "rebn"
    assert config.model.lora is not None
    assert config.model.lora.rank == 4
    assert config.entropy == Anneal(0.1)
    assert config.seed == 7


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("learner.lerning_rate=1", "lerning_rate"),
        ("learner.learning_rate=0", "learning_rate"),
        ("advantage.method=magic", "method"),
        ("keep=1", "keep"),
        ("steps.much=1", "not a table"),
        ("nonsense", "override"),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_config(recipe, [override])


def test_what_is_not_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("steps = ")
    for path in (tmp_path / "x.toml", tmp_path / "absent.toml"):
        with pytest.raises(UsageError, match="not a recipe"):
            load_config(path)


def test_annealing_is_linear_and_then_stays() -> None:
    assert [Anneal(0.1, 0.0, 10).at(step) for step in (0, 5, 10, 99)] == pytest.approx([0.1, 0.05, 0.0, 0.0])
