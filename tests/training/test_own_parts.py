"""A package outside the tree replaces one part of each kind, by a recipe alone: docs/how-to/replace-a-part.md."""

import csv
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import palestra
from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.recipes.play import Variant
from palestra.recipes.reading import saved_config
from palestra.registry import unregister
from palestra.rollouts import read_trajectories
from palestra.training import hook, resolve
from palestra.training.parts import load_parts, register_variants
from palestra.training.record import read_metrics
from palestra.trajectory import StopReason

pytestmark = pytest.mark.torch

PACKAGE = Path(__file__).parents[2] / "docs" / "snippets" / "parts"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, as a stranger would have it in a folder of their own."""
    return Path(shutil.copytree(PACKAGE, tmp_path_factory.mktemp("stranger") / "parts"))


@pytest.fixture
def recipe(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(package)
    yield Path("recipe.toml")
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_parts"]:
        del sys.modules[name]


@pytest.mark.gate
@pytest.mark.slow
def test_one_part_of_each_kind_is_trained_and_resumed(recipe: Path, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = ["train", str(recipe), f"model.path={tiny_model}", "--out", str(folder)]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    again = CliRunner().invoke(app, [*command, "steps=3"], catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert "resuming from step 2 of 3" in again.output

    steps = read_metrics(folder)
    assert [line["step"] for line in steps] == [1, 2, 3]
    with (folder / "metrics.csv").open() as file:  # writer
        assert [row[0] for row in csv.reader(file)] == ["1", "2", "3"]
    assert re.search(r"\d+ replies were sampled", again.output)  # engine
    episodes = list(read_trajectories(folder / "trajectories.jsonl"))
    assert len(episodes) == 12
    for one in episodes:
        assert one.task.env == "own:Recite"
        assert one.policy == "BriefStart"
        assert [tool["name"] for tool in one.info["tools"]] == ["count_letters"]  # tool
        assert len(one.turns) <= 2 ** (one.info["step"] - 1)  # horizon
        assert one.turns[0].completion.tokens is None or len(one.turns[0].completion.tokens.ids) <= 48  # policy
        info = one.turns[-1].info
        assert sum(turn.reward for turn in one.turns) == pytest.approx(info["grader"] + info["group_reward"])
    by_group = {(one.info["step"], one.group) for one in episodes}
    for key in by_group:  # advantage: twice the distance from the mean of the group
        members = [one for one in episodes if (one.info["step"], one.group) == key]
        assert sum(one.turns[-1].info["group_reward"] for one in members) == 0.25
        mean = sum(one.reward or 0.0 for one in members) / 2
        for one in members:
            assert one.turns[0].info["advantage"] == pytest.approx(2 * ((one.reward or 0.0) - mean), abs=1e-6)

    assert saved_config(folder) == resolve(recipe, [f"model.path={tiny_model}", "steps=3"])
    assert saved_config(folder).advantage.method == {"use": "own_parts.learning:centered", "scale": 2.0}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("advantage.method.scal=3", 'advantage.method: own_parts.learning:centered has no keyword "scal". Did you mean scale?'),
        ("policy=own_parts.playing:BriefStart", "policy: Palestra calls own_parts.playing:BriefStart(sampled), and that fails"),
        ("learner.loss.kind=own_parts.learning:clipped", "has no 'clipped'"),
        ("prompt.history=nowhere:History", "there is no module 'nowhere'"),
        ("play.grader=own_parts.learning:PairwiseJudge.prefers", "play.grader: Palestra calls"),
        ("engine.kind=own_parts.playing:WORDS", 'engine.kind = "own_parts.playing:WORDS" is a tuple'),
        ("play.group_reward=own_parts.playing:Recite", "the class has no __call__"),
        ("horizon.default={use='stepwise', turns=[], every=1}", "horizon: "),
        ('variants."own:Recite".tools=[{use="own_parts.playing:count_letters", x=1}]', "takes no keywords"),
        ('variants."own:Recite".wrappers=["own_parts.learning:doubling"]', "variants.ID.wrappers: "),
    ],
)
def test_a_part_that_does_not_fit_is_refused_before_a_model_is_loaded(recipe: Path, override: str, said: str) -> None:
    sys.path.append(str(Path.cwd()))
    with pytest.raises(UsageError, match=re.escape(said)):
        load_parts(resolve(recipe, [override]))


@pytest.mark.parametrize(
    "env", ["'data:./questions.jsonl?grader=own_grading:grade'", "{use='data:./questions.jsonl', grader='own_grading:grade'}"]
)
def test_the_command_finds_the_grader_of_a_variant_in_the_working_folder(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_grading.py").write_text("def grade(answer, row): return len(answer) / 10")
    (tmp_path / "questions.jsonl").write_text('{"question": "2 + 2?", "answer": "4"}\n')
    overrides = ["envs=none", "envs.own:Asked=1.0", f"variants.own:Asked.env={env}"]
    done = CliRunner().invoke(app, ["train", "cpu/guess", *overrides, "--dry-run"], catch_exceptions=False)
    try:
        assert done.exit_code == 0, done.output
        played = palestra.make("own:Asked")
        played.reset(seed=0)
        assert played.step("12345").reward == 0.5
    finally:
        unregister("own:Asked")
        sys.modules.pop("own_grading", None)


@pytest.mark.parametrize("max_turns", [2, 3])
def test_max_turns_of_a_recipes_environment_truncates_its_episodes(max_turns: int) -> None:
    id = f"own:Short{max_turns}-v0"
    register_variants({id: Variant(hook("game:GuessTheNumber-v0-easy", max_turns=max_turns))})
    try:
        played = palestra.collect(id, lambda text: "\\boxed{99}", n=3, progress=False)
    finally:
        unregister(id)
    assert {(one.stop, len(one.turns)) for one in played} == {(StopReason.TURN_LIMIT, max_turns)}


def test_python_names_a_part_by_the_object(recipe: Path) -> None:
    sys.path.append(str(Path.cwd()))
    from own_parts.learning import centered  # type: ignore[import-not-found, unused-ignore]

    assert hook(centered, scale=2.0) == resolve(recipe).advantage.method
    with pytest.raises(UsageError, match="define it at the top level"):
        hook(lambda groups, config: groups)
