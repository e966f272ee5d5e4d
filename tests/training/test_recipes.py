"""The recipes that are shipped can be read, planned and, where nobody has run them, say so."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.registry import list_envs, spec
from palestra.training.estimate import estimate, model_size
from palestra.training.recipe import load_recipe

pytestmark = pytest.mark.torch

RECIPES = Path(__file__).parents[2] / "recipes"
GPU = sorted((RECIPES / "gpu").glob("*.toml"))


@pytest.mark.parametrize("recipe", GPU, ids=lambda path: path.stem)
def test_a_gpu_recipe_can_be_planned_without_weights(recipe: Path) -> None:
    assert recipe.read_text().startswith("# NOT YET RUN ON A GPU.")
    done = CliRunner().invoke(app, ["train", str(recipe), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "(by its name)" in done.output
    config = load_recipe(recipe)
    assert config.learner.learning_rate == 1e-6
    assert config.learner.loss.clip_low == config.learner.loss.clip_high == 0.2
    for env in config.envs:
        spec(env)
    for env in config.evaluation.envs if config.evaluation else ():
        assert list_envs(env)


@pytest.mark.parametrize("recipe", sorted((RECIPES / "cpu").glob("*.toml")), ids=lambda path: path.stem)
def test_a_cpu_recipe_can_be_planned(recipe: Path) -> None:
    plan = estimate(load_recipe(recipe))
    assert plan.turns >= 1
    assert 0 < sum(plan.memory.values()) < 16e9


def test_the_papers_numbers_are_in_the_recipes() -> None:
    gem = load_recipe(RECIPES / "gpu" / "gem-game-qwen3-4b.toml")
    assert (gem.steps, gem.epochs, gem.play.tasks * gem.play.group_size, gem.play.max_tokens) == (500, 2, 128, 4096)
    assert (gem.advantage.method, gem.advantage.discount, gem.learner.loss.kl_coefficient) == ("rebn", 0.9, 0.0)
    assert load_recipe(RECIPES / "gpu" / "gem-math-python-qwen3-4b.toml").advantage.discount == 1.0
    search = load_recipe(RECIPES / "gpu" / "scalinginter-search-qwen2.5-7b.toml")
    assert search.horizon is not None
    assert [search.horizon.at("qa:HotpotQA-search", step) for step in (0, 99, 100, 200, 299)] == [5, 5, 8, 10, 10]
    assert (search.learner.loss.kl, search.learner.loss.kl_coefficient) == ("k3", 1e-3)


def test_memory_is_what_the_parameters_take() -> None:
    plan = estimate(load_recipe(RECIPES / "gpu" / "scalinginter-search-qwen2.5-7b.toml"))
    assert plan.model.parameters == 7e9
    assert plan.memory == {"weights": 28e9, "gradients": 28e9, "optimiser": 56e9, "reference": 28e9}
    assert plan.on_each_of(8) == 140e9 / 8
    assert plan.tokens == 256 * plan.turns * 1024


@pytest.mark.parametrize(("name", "size"), [("a/Qwen3-4B-Base", 4e9), ("x-1.7b", 1.7e9), ("SmolLM2-135M-Instruct", 135e6)])
def test_a_name_states_a_size(name: str, size: float) -> None:
    assert model_size(name).parameters == size


def test_a_name_without_a_size_is_not_guessed() -> None:
    assert model_size("nobody/knows").source == "its size is not known here"
