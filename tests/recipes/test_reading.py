"""Recipes: TOML, dotted overrides, and mistakes told in the user's words."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

import palestra.training
from palestra.errors import UsageError
from palestra.recipes.algorithms import Anneal
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import recorded, resolve
from palestra.training.algorithms.horizon import Stepwise, schedule_of

RECIPE = """
steps = 10

[model]
path = "somewhere"

[envs]
"game:GuessTheNumber-v0-easy" = 1.0

[horizon.default]
use = "stepwise"
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
    config = resolve(recipe)
    assert config.advantage.method == "grpo"
    assert config.horizon is not None
    assert schedule_of(config.horizon, "game:x") == Stepwise((5, 10), 100)
    assert msgspec.json.decode(msgspec.json.encode(config), type=TrainConfig) == config


def test_a_mapping_is_resolved_as_a_file_is_and_stays_as_it_was(recipe: Path) -> None:
    tables = tomllib.loads(RECIPE)
    overrides = ["preset=dapo", "advantage.epsilon=0.5", "horizon=none"]
    assert resolve(tables, overrides) == resolve(recipe, overrides)
    assert tables == tomllib.loads(RECIPE)
    with pytest.raises(UsageError, match=r"^the recipe: steps: expected"):
        resolve({**tables, "steps": 0})


def test_the_earlier_name_of_resolve_is_answered_by_the_new_one() -> None:
    with pytest.raises(AttributeError, match=r"is now palestra\.training\.resolve"):
        palestra.training.load_recipe  # noqa: B018


def test_overrides_are_dotted_names(recipe: Path) -> None:
    overrides = ["learner.learning_rate=1e-5", "advantage.method=rebn", "model.lora.rank=4", "entropy.start=0.1", "seed=7"]
    config = resolve(recipe, overrides)
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
        ("play.cut=banana", "invalid enum value 'banana', expected one of as_invalid, mask, a number"),
        ("engine.zzz=1", "There are engine.batch, engine.device"),
        ("learner.learning_rate=0", "learner.learning_rate: expected `float` > 0.0"),
        ("learner.learning_rate=fast", "learner.learning_rate: expected `float`, got `str`"),
        ("advantage.method=magic", 'advantage.method = "magic" is unknown: write one of reinforce, rebn'),
        ("prompt.history.turns=2", "prompt.history: write a name, or a table that names the object"),
        (
            "policy=magic",
            'policy = "magic" is unknown: write one of sampled, react, plan, scratchpad, reflect',
        ),
        ("play.grader=magic", 'play.grader = "magic" is unknown: write module:name'),
        ("writers=['csv']", 'writers = "csv" is unknown: write one of tensorboard, wandb'),
        ("advantage.method=ppo_turn", "needs a critic: model.critic = true"),
        ("play.group_size=1", "compares the members of a group: play.group_size >= 2"),
        ("engine.kind=vllm", "engine.urls"),
        ('engine.urls=["http://localhost:1"]', "engine.kind"),
        ("horizon.default.use=sudden", 'horizon = "sudden" is unknown: write one of fixed, stepwise'),
        ("keep=1", "keep: expected `int` >= 2"),
        ("warm_start.epoch=none", 'no "warm_start.epoch". Did you mean warm_start.epochs?'),
        ("learner.loss.clip_high=inf", "learner.loss.clip_high must be a finite number: config.json cannot hold inf or nan"),
        ("advantage.method={use='m:f', bounds=[0.0, nan]}", "advantage.method.bounds.1 must be a finite number"),
        ("steps.much=1", "not a table"),
        ("envs={}", "name at least one"),
        ("nonsense", "override"),
        ('a."b=1', "not a dotted name"),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        resolve(recipe, [override])


def test_an_override_can_name_an_environment_and_take_a_table_out(recipe: Path) -> None:
    ids = {"game:Wordle-v0": 2.0, "remote:http://a.b#game:X": 0.5, "data:q.jsonl?grader=number": 3.0}
    config = resolve(recipe, ["horizon=none", *(f'envs."{id}"={weight}' for id, weight in ids.items())])
    assert config.horizon is None
    assert config.envs == {"game:GuessTheNumber-v0-easy": 1.0, **ids}
    assert resolve(recipe, ["envs.game:Wordle-v0=2"]).envs["game:Wordle-v0"] == 2.0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("steps = ", r"own\.toml is not a recipe"),
        (None, r"there is no recipe .*own\.toml\. Name a TOML file, or one of cpu/babyai"),
        (RECIPE.replace("steps = 10", "steps = 0"), r"^.*own\.toml with seed=1: steps: expected"),
    ],
)
def test_what_is_not_a_recipe_is_refused_and_blamed_even_if_there_are_overrides(
    content: str | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "own.toml").write_text(content)
    with pytest.raises(UsageError, match=said):
        resolve(tmp_path / "own.toml", ["seed=1"])


def test_what_is_written_down_has_no_password(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(RECIPE)
    overrides = [
        "engine.kind=vllm",
        'engine.urls=["http://me:pa55word@host:8000"]',
        'envs."remote:http://me:pa55word@host#a:B"=1.0',
    ]
    config = resolve(tmp_path / "x.toml", overrides)
    assert b"pa55word" in msgspec.json.encode(config)
    assert b"pa55word" not in msgspec.json.encode(recorded(config))
    assert recorded(config) == recorded(recorded(config))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["steps=0"], 'the override "steps=0": steps: expected'),
        (["seed=1", "play.tasks=many"], 'the override "play.tasks=many": play.tasks: expected'),
        (["engine={batch=0}"], 'the override "engine={batch=0}": engine.batch: expected'),
        (["staleness=1", "ahead=2"], "with staleness=1 ahead=2: ahead = 2 starts groups"),
    ],
)
def test_a_wrong_override_is_blamed_and_not_the_recipe(overrides: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        resolve("cpu/guess", overrides)
    assert str(raised.value).startswith(said)
    assert "guess.toml" not in str(raised.value)


@pytest.mark.parametrize("name", ["cpu/gues", "cpu/gues.toml", "guess", "/cpu/guess"])
def test_a_misspelled_recipe_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(UsageError, match=r"there is no recipe .*\. Did you mean cpu/guess") as raised:
        resolve(name)
    assert "cpu/maze" not in str(raised.value)
