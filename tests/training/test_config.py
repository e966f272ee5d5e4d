"""Recipes: TOML, dotted overrides, and mistakes told in the user's words."""

import re
from pathlib import Path

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.training.config import Anneal, TrainConfig
from palestra.training.horizon import Stepwise
from palestra.training.recipe import differences, load_recipe, names

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
    config = load_recipe(recipe)
    assert config.advantage.method == "grpo"
    assert config.horizon is not None
    assert config.horizon.default == Stepwise((5, 10), 100)
    assert msgspec.json.decode(msgspec.json.encode(config), type=TrainConfig) == config


def test_overrides_are_dotted_names(recipe: Path) -> None:
    overrides = ["learner.learning_rate=1e-5", "advantage.method=rebn", "model.lora.rank=4", "entropy.start=0.1", "seed=7"]
    config = load_recipe(recipe, overrides)
    assert config.learner.learning_rate == 1e-5
    assert config.advantage.method == "rebn"
    assert config.model.lora is not None
    assert config.model.lora.rank == 4
    assert config.entropy == Anneal(0.1)
    assert config.seed == 7


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("learner.lerning_rate=1", 'no "learner.lerning_rate". Did you mean learner.learning_rate?'),
        ("learning_rate=1", 'no "learning_rate". Did you mean warm_start.learning_rate or learner.learning_rate?'),
        ("lerner.loss.clip_low=0.1", 'no "lerner". Did you mean learner?'),
        ("horizon.default.turn=3", 'no "horizon.default.turn". Did you mean horizon.default.turns?'),
        ("engine.zzz=1", "There are engine.batch, engine.device"),
        ("learner.learning_rate=0", "learner.learning_rate: expected `float` > 0.0"),
        ("learner.learning_rate=fast", "learner.learning_rate: expected `float`, got `str`"),
        ("advantage.method=magic", "advantage.method: invalid enum value 'magic', expected one of reinforce, rebn"),
        ("advantage.method=ppo_turn", "needs a critic: model.critic = true"),
        ("play.group_size=1", "compares members of a group: play.group_size >= 2"),
        ("engine.kind=vllm", "engine.urls"),
        ('engine.urls=["http://localhost:1"]', "engine.kind"),
        ("horizon.default.kind=sudden", "horizon.default.kind: invalid value 'sudden'"),
        ("keep=1", "keep: expected `int` >= 2"),
        ("steps.much=1", "not a table"),
        ("envs={}", "name at least one"),
        ("nonsense", "override"),
        ('a."b=1', "not a dotted name"),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        load_recipe(recipe, [override])


def test_an_override_can_name_an_environment_and_take_a_table_out(recipe: Path) -> None:
    config = load_recipe(recipe, ["horizon=none", "envs.game:Wordle-v0=2", 'envs."remote:http://a.b#game:X"=0.5'])
    assert config.horizon is None
    assert config.envs == {"game:GuessTheNumber-v0-easy": 1.0, "game:Wordle-v0": 2.0, "remote:http://a.b#game:X": 0.5}


def test_what_differs_is_named_but_for_what_may(recipe: Path) -> None:
    first, second = load_recipe(recipe), load_recipe(recipe, ["seed=1", "steps=99", "model.lora.rank=4", "horizon=none"])
    found = differences(first, second)
    assert "seed" in found
    assert "steps" not in found
    assert "model.lora.rank" in found
    assert any(name.startswith("horizon") for name in found)
    assert differences(first, first) == []


def test_every_name_can_be_looked_up() -> None:
    known = dict(names())
    assert {"steps", "learner.loss.clip_low", "horizon.default.every", "model.lora.rank", "engine.urls"} <= known.keys()


def test_what_is_not_a_recipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("steps = ")
    for path in (tmp_path / "x.toml", tmp_path / "absent.toml"):
        with pytest.raises(UsageError, match="not a recipe"):
            load_recipe(path)


def test_annealing_is_linear_and_then_stays() -> None:
    assert [Anneal(0.1, 0.0, 10).at(step) for step in (0, 5, 10, 99)] == pytest.approx([0.1, 0.05, 0.0, 0.0])
