"""The recipes that are shipped can be read, planned and, where nobody has run them, say so."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.recipes.reading import find_recipe, resolve
from palestra.registry import list_envs, spec
from palestra.training.algorithms.horizon import StepOutcome
from palestra.training.estimate import _largest_micro_batch, estimate, model_size

pytestmark = pytest.mark.torch

RECIPES = Path(__file__).parents[2] / "src" / "palestra" / "recipes" / "files"
GPU = sorted((RECIPES / "gpu").glob("*.toml"))


@pytest.mark.parametrize("recipe", GPU, ids=lambda path: path.stem)
def test_a_gpu_recipe_can_be_planned_without_weights(recipe: Path) -> None:
    assert recipe.read_text().startswith("# NOT YET RUN ON A GPU.")
    done = CliRunner().invoke(app, ["train", str(recipe), "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "(by its name)" in done.output
    config = resolve(recipe)
    for env in config.envs:
        spec(env)
    for env in config.evaluation.envs if config.evaluation else ():
        assert list_envs(env)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted((RECIPES / "cpu").glob("*.toml")), ids=lambda path: path.stem)
def test_a_cpu_recipe_can_be_planned(recipe: Path) -> None:
    plan = estimate(resolve(recipe))
    assert plan.turns >= 1
    assert 0 < sum(plan.memory.values()) < 16e9


class Gate:
    """A schedule whose turns depend on outcomes, which are not known before the run."""

    longest = 6

    def __call__(self, step: int, outcomes: Sequence[StepOutcome]) -> int:
        return self.longest if outcomes else 2


def test_the_plan_takes_the_longest_horizon_of_a_schedule_of_ones_own() -> None:
    config = resolve("cpu/guess50", [f"horizon.default={__name__}:Gate"])
    assert estimate(config).turns == 6


def test_memory_is_what_the_parameters_take() -> None:
    plan = estimate(resolve(RECIPES / "gpu" / "scalinginter-search-qwen2.5-7b.toml"))
    assert plan.model.parameters == 7e9
    assert plan.memory == {"weights": 28e9, "gradients": 28e9, "optimizer": 56e9, "reference": 28e9}
    assert plan.learner.on_each_of(8) == 140e9 / 8
    assert plan.tokens == 256 * plan.turns * 1024


@pytest.mark.parametrize(("name", "size"), [("a/Qwen3-4B-Base", 4e9), ("x-1.7b", 1.7e9), ("SmolLM2-135M-Instruct", 135e6)])
def test_a_name_states_a_size(name: str, size: float) -> None:
    config = resolve("cpu/guess", [f"model.path={name}"])
    assert model_size(config, 1).parameters == size


@pytest.mark.slow
def test_the_plan_takes_the_micro_batch_that_the_packer_makes() -> None:
    def activations(*changes: str) -> float:
        return estimate(resolve("cpu/guess", list(changes))).memory["activations"]

    whole = activations()
    assert activations("minibatches=12") < 0.9 * whole  # fewer episodes per update than positions
    assert activations("learner.packing.positions=1000000") == whole
    assert activations("learner.packing.positions=256") < 0.5 * whole


def one_policy(setup: object) -> str:
    return "random"


def test_earlier_weights_of_an_opponent_need_memory_and_disk() -> None:
    changes = ['opponent.players=["first", "second"]', "keep=2", "checkpoint_every=10", "opponent.every=20", "opponent.pool=3"]
    alone, opposed = estimate(resolve("cpu/guess")), estimate(resolve("cpu/guess", changes))
    folders = 3 + 1 + 1 + 1  # the pool, one that a resume goes back by, the current one, and one that is being written
    assert opposed.memory["opponent"] == opposed.memory["engine"]
    assert opposed.opponents == folders * opposed.memory["engine"]
    assert opposed.disk == 3 * opposed.checkpoint + opposed.opponents
    assert alone.opponents == 0
    assert "opponents" in opposed.lines()[-1]
    own = estimate(resolve("cpu/guess", ['opponent.players=["first", "second"]', f"opponent.kind={__name__}:one_policy"]))
    assert own.opponents == 0


def test_a_segment_is_no_longer_than_the_context_of_the_model() -> None:
    config = resolve("cpu/guess", ["play.max_tokens=4096", "prompt.shots=2"])
    free, bound = (_largest_micro_batch(config, 8, longest) for longest in (None, 2048))
    assert free.length > 2 * 8 * 4096
    assert bound.length == 2048
    assert bound.sampled + bound.prefix <= bound.length


@pytest.mark.slow
def test_a_family_without_a_plan_gets_the_size_of_its_name_and_the_reason(tmp_path: Path) -> None:
    import transformers

    folder = tmp_path / "gpt2-124m"
    transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=64).save_pretrained(folder)
    plan = estimate(resolve("cpu/guess", [f"model.path={folder}"]))
    assert plan.model.parameters == 124e6
    assert "not known here: GPT2Model has no attribute layers)" in "\n".join(plan.lines())


@pytest.mark.slow
def test_ranks_share_parameters_and_gather_a_layer_at_a_time() -> None:
    plan = estimate(resolve("cpu/guess"))
    shared = sum(plan.memory[name] for name in ("weights", "gradients", "optimizer"))
    rest = sum(plan.memory.values()) - shared
    assert plan.learner.on_each_of(1) == shared + rest
    assert plan.model.sharded == plan.memory["activations"]
    assert plan.learner.on_each_of(4) == shared / 4 + rest + plan.model.gathered
    assert plan.model.gathered > 0


@pytest.mark.parametrize("name", ["cpu/guess", "cpu/guess.toml"])
def test_a_shipped_recipe_is_found_by_its_name_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe(Path(name)) == RECIPES / "cpu" / "guess.toml"
    (tmp_path / "cpu").mkdir()
    (tmp_path / name).write_text("steps = 1")
    assert find_recipe(Path(name)) == Path(name)


@pytest.mark.parametrize("name", ["recipes.toml", "../recipes/guessing", "cpu"])
def test_another_name_is_answered_with_the_list(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cpu/guess, cpu/guess20, "):
        find_recipe(Path(name))


def test_adapters_are_counted_from_the_shapes_of_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.training.estimate._settings", lambda path: None)  # as on a machine without the model

    def trained(path: str, **lora: object) -> float:
        config = resolve(RECIPES / "gpu" / "scalinginter-web-qwen2.5-7b.toml", [f"model.path={path}", "model.lora.rank=64"])
        lora_settings = msgspec.structs.replace(config.model.lora, **lora)  # type: ignore[type-var]
        return model_size(
            msgspec.structs.replace(config, model=msgspec.structs.replace(config.model, lora=lora_settings)), 1
        ).trained

    # Per layer of Qwen2.5-7B: four projections of the attention and three of the feed-forward part.
    layer = 2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944)
    assert trained("Qwen/Qwen2.5-7B-Instruct") == 64 * 28 * layer == pytest.approx(161.5e6, rel=1e-3)
    assert trained("Qwen/Qwen2.5-7B-Instruct", rank=8) == 8 * 28 * layer
    assert trained("Qwen/Qwen2.5-7B-Instruct", targets=("q_proj", "v_proj")) == 64 * 28 * (2 * 3584 + 3584 + 512)
    # Of models whose shapes are not in the package, the usual proportions: Llama 3 with 8 and with 70 billion parameters.
    for path, layers, width, shared, between in (("llama-3-8b", 32, 4096, 1024, 14336), ("llama-3-70b", 80, 8192, 1024, 28672)):
        assert trained(path) == pytest.approx(64 * layers * (4 * width + 2 * (width + shared) + 3 * (width + between)), rel=0.2)
