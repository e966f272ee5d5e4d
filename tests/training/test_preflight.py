"""Before the first step: each thing that can be wrong is found, and said in words that name it."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import transformers

import palestra
from palestra.core import Env, Step
from palestra.recipes.config import TrainConfig
from palestra.tools import tool
from palestra.training.assembly import assemble
from palestra.training.preflight import PreflightFinding, preflight
from palestra.training.trainer import Trainer
from palestra.trajectory import TrajectoryGroup
from palestra.wrappers import UseTools

pytestmark = pytest.mark.torch

GAME = "game:GuessTheNumber-v0-easy"


def trainer(model: Path, folder: Path, env: str = GAME, **changes: Any) -> Trainer:
    data = {
        "model": {"path": str(model)},
        "envs": {env: 1.0},
        "steps": 1,
        "play": {"tasks": 1, "group_size": 2, "max_tokens": 96},
        **changes,
    }
    return assemble(msgspec.convert(data, TrainConfig), folder)


def found(subject: Trainer) -> list[PreflightFinding]:
    with subject.ledger:
        return asyncio.run(preflight(subject))


class Door(Env):
    """Say the word."""

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "Say the word.", {}

    def step(self, action: str) -> Step:
        opened = action == "open"
        return Step("", float(opened), True, False, {"success": opened})

    def oracle(self) -> str:
        return "open"


class Broken(Door):
    def step(self, action: str) -> Step:
        raise RuntimeError("the hinge is off")


class Silent(Door):
    def oracle(self) -> str:
        raise palestra.errors.Unsupported("nobody knows")


class Hopeless(Door):
    def oracle(self) -> str:
        return "please"


@tool
async def knock(times: int) -> str:
    """Knock so many times."""
    return "somebody comes" if times else "nothing"


@tool
async def jammed(times: int) -> str:
    """Always fails."""
    raise RuntimeError("jammed")


def lent(env: Any) -> Any:
    return UseTools(env, [knock])


def lent_jammed(env: Any) -> Any:
    return UseTools(env, [jammed])


@pytest.fixture
def ids() -> Any:
    entries: dict[str, Any] = {"Door": Door, "Broken": Broken, "Silent": Silent, "Hopeless": Hopeless}
    for name, entry in entries.items():
        palestra.register(f"try:{name}-v0", entry)
    palestra.register("try:Lent-v0", Door, wrappers=[lent])
    palestra.register("try:Jammed-v0", Door, wrappers=[lent_jammed])
    yield
    for name in (*entries, "Lent", "Jammed"):
        palestra.registry.unregister(f"try:{name}-v0")


@pytest.mark.gate
@pytest.mark.slow
def test_a_sound_run_has_nothing_fatal(tiny_model: Path, tmp_path: Path) -> None:
    assert not [finding for finding in found(trainer(tiny_model, tmp_path)) if finding.fatal]


@pytest.mark.parametrize(
    ("env", "fatal", "said"),
    [
        ("try:Broken-v0", True, "cannot be played: RuntimeError while stepping: the hinge is off"),
        ("try:Silent-v0", False, "has no oracle"),
        ("try:Hopeless-v0", False, "its own oracle did not win"),
        ("try:Jammed-v0", True, "a call of the tool jammed ends as crashed"),
    ],
)
def test_environments_are_tried(tiny_model: Path, tmp_path: Path, ids: None, env: str, fatal: bool, said: str) -> None:
    first = found(trainer(tiny_model, tmp_path, env))[0]
    assert (first.fatal, first.where) == (fatal, env)
    assert said in first.what


@pytest.mark.gate
@pytest.mark.usefixtures("ids")
@pytest.mark.slow
def test_a_tool_that_works_is_no_finding(tiny_model: Path, tmp_path: Path) -> None:
    assert not [finding for finding in found(trainer(tiny_model, tmp_path, "try:Lent-v0")) if finding.fatal]


def test_an_unknown_environment_is_named(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(palestra.errors.UnknownEnv, match="GuessTheNumber"):
        found(trainer(tiny_model, tmp_path, "game:GuessTheNumbr-v0"))


def test_limits_that_the_oracle_cannot_keep_are_fatal(tiny_model: Path, tmp_path: Path) -> None:
    (finding, *_) = found(trainer(tiny_model, tmp_path, play={"tasks": 1, "group_size": 2, "max_tokens": 2}))
    assert "tokens, and play.max_tokens is 2" in finding.what
    small = trainer(tiny_model, tmp_path / "b")
    small.engine.context_length = 20
    (finding, *_) = found(small)
    assert finding.fatal
    assert "20 positions" in finding.what


def test_a_horizon_that_is_too_short_is_noted(tiny_model: Path, tmp_path: Path) -> None:
    horizon = {"default": {"use": "fixed", "turns": 1}}
    findings = found(trainer(tiny_model, tmp_path, horizon=horizon))
    assert any("the horizon never exceeds 1" in finding.what and not finding.fatal for finding in findings)


@pytest.mark.gate
@pytest.mark.usefixtures("ids")
@pytest.mark.slow
def test_words_that_the_tokens_do_not_keep_are_fatal(tiny_model: Path, tmp_path: Path) -> None:
    subject = trainer(tiny_model, tmp_path, "try:Door-v0")
    read = subject.sampled.renderer.read
    subject.sampled.renderer.read = lambda prompt, ids: read(prompt, ids)._replace(text="opne")  # type: ignore[method-assign]
    (finding, *_) = found(subject)
    assert finding.what == "'open' of its oracle reads back as 'opne' from this model's tokens, and scores 0 instead of 1"


@pytest.mark.gate
@pytest.mark.slow
def test_a_learner_that_is_another_policy_than_the_engine_is_fatal(tiny_model: Path, tmp_path: Path) -> None:
    subject = trainer(tiny_model, tmp_path, learner={"temperature": 1.0})
    measure = subject.learner.measure

    def shifted(batch: Any) -> Any:
        measured = measure(batch)
        return replace(measured, logprobs=measured.logprobs - 3.0)

    subject.learner.measure = shifted  # type: ignore[method-assign]
    (finding, *_) = found(subject)
    assert finding.fatal
    assert "engine and learner differ by 3" in finding.what


def one_number(group: TrajectoryGroup) -> Any:
    return 1.0


@pytest.mark.gate
@pytest.mark.slow
def test_a_group_reward_that_returns_the_wrong_thing_is_found_before_the_first_step(tiny_model: Path, tmp_path: Path) -> None:
    play = {"tasks": 1, "group_size": 2, "max_tokens": 96, "group_reward": f"{__name__}:one_number"}
    (finding, *_) = found(trainer(tiny_model, tmp_path, play=play))
    assert finding.fatal
    assert "play.group_reward must return a list with one number per member (2), got 1.0" in finding.what


def one_list(groups: Any, config: Any) -> Any:
    return [1.0 for group in groups]


def raising(groups: Any, config: Any) -> Any:
    raise KeyError("baseline")


def objective_of_a_number(new: Any, ratio: Any, tokens: Any, config: Any) -> Any:
    return 1.0


def half_turns(step: int, outcomes: Any) -> Any:
    return 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"advantage": {"method": f"{__name__}:one_list"}}, "advantage.method must return a row per group"),
        ({"advantage": {"method": f"{__name__}:raising"}}, "fails on the probe episodes (test_preflight.py, line "),
        ({"learner": {"loss": {"kind": f"{__name__}:objective_of_a_number"}}}, "learner.loss.kind must return a tensor"),
        ({"horizon": {"default": f"{__name__}:half_turns"}}, "a schedule returns a number of turns"),
    ],
)
def test_a_part_of_the_step_that_does_the_wrong_thing_is_found_before_it(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    (finding, *_) = found(trainer(tiny_model, tmp_path, **changes))
    assert finding.fatal
    assert said in str(finding)


@pytest.mark.slow
def test_parts_that_ship_pass_the_trial_of_the_step(tiny_model: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"advantage": {"method": "gigpo"}, "learner": {"loss": {"kind": "gspo", "kl_coefficient": 0.1}}}
    assert not [one for one in found(trainer(tiny_model, tmp_path, **changes)) if one.fatal]


def test_the_vocabulary_is_written_for_the_viewer(tiny_model: Path, tmp_path: Path) -> None:
    trainer(tiny_model, tmp_path).ledger.close()
    words = msgspec.json.decode((tmp_path / "vocabulary.json").read_bytes())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    assert words == [tokenizer.decode([token]) for token in range(len(tokenizer))]
    assert len(set(words)) > len(words) / 2, "the words differ"
