"""``palestra train`` as a user meets it: a recipe goes in, a run folder comes out, and the same command goes on."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cli.endings import Interrupted
from palestra.cli.train import run_folder
from palestra.errors import UsageError
from palestra.training.record import read_metrics
from palestra.viewer import export_runs
from tests.cli.invoking import palestra

pytestmark = pytest.mark.torch

# The rewards of an untrained model may be all the same. Other methods then have no advantage, and a step makes no update.
RECIPE = """
steps = 3
checkpoint_every = 2
samples = 1
model.path = "{model}"
envs."game:GuessTheNumber-v0-easy" = 1.0
play = {{tasks = 2, group_size = 2, max_tokens = 16}}
advantage.method = "reinforce"
learner.learning_rate = 1e-3
evaluation = {{every = 2, n = 3}}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    path = tmp_path_factory.mktemp("recipes") / "guess.toml"
    path.write_text(RECIPE.format(model=tiny_model))
    return path


@pytest.mark.slow
def test_a_recipe_becomes_a_run_that_can_be_looked_at(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = palestra("train", recipe, "--out", run, "--tensorboard")
    assert shown.startswith(f"{run}: 3 steps. The model is loaded and checked")
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("step")] == ["1/3", "2/3", "3/3"]
    lines = read_metrics(run)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert ["evaluation/score" in line for line in lines] == [False, True, True]
    assert json.loads((run / "evaluations" / "step-00000002" / "report.json").read_bytes())["suite"]["issued"] == 3
    export_runs([run], tmp_path / "page.html")
    assert "GuessTheNumber" in (tmp_path / "page.html").read_text()
    assert _tensorboard(run / "tensorboard")["reward"] == pytest.approx([line["reward"] for line in lines])
    # The same command has nothing left to do; with more steps it goes on.
    assert "step 4" not in palestra("train", recipe, "--out", run)
    resumed = CliRunner().invoke(app, ["train", str(recipe), "steps=4", "--out", str(run)])
    assert "resuming from step 3 of 4" in resumed.stderr
    assert "step 4/4" in resumed.stdout
    assert [line["step"] for line in read_metrics(run)] == [1, 2, 3, 4]
    palestra("plot", run, "-o", tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text().count("<polyline") == 4


def _tensorboard(folder: Path) -> dict[str, list[float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_another_run_in_the_same_folder_is_refused_by_name(recipe: Path, tmp_path: Path) -> None:
    palestra("train", recipe, "steps=1", "evaluation=none", "--out", tmp_path, "--no-check")
    with pytest.raises(UsageError, match="seed was 0 and is now 1"):
        palestra("train", recipe, "steps=1", "evaluation=none", "seed=1", "--out", tmp_path)


def test_ranks_that_cannot_be_are_refused_before_anything_is_written(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"model\.share_prefix=false"):
        palestra("train", recipe, "model.share_prefix=true", "--ranks", "2", "--cluster", "local", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_environment_of_the_working_folder_is_trained_and_evaluated(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_game.py").write_text("from palestra.suite.games.guess_the_number import GuessTheNumber as Same\n")
    (tmp_path / "own.toml").write_text(recipe.read_text().replace("game:GuessTheNumber-v0-easy", "my_own_game:Same"))
    monkeypatch.chdir(tmp_path)
    palestra("train", "own.toml", "steps=2")
    assert [line["step"] for line in read_metrics(tmp_path / "runs" / "own")] == [1, 2]
    assert (tmp_path / "runs" / "own" / "evaluations" / "step-00000002" / "report.json").exists()


def test_a_dry_run_tells_the_plan_and_makes_nothing(recipe: Path, tmp_path: Path) -> None:
    shown = palestra("train", recipe, "play.tasks=5", "--dry-run", "--out", tmp_path / "run")
    assert shown.startswith("folder"), "the figures come before the long recipe"
    assert '"tasks": 5' in shown.partition("per run")[2]
    assert "10 episodes of at most 4 turns; at most 640 tokens" in shown
    assert "per run     at most 1,920 tokens" in shown
    assert "(counted)" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("steps", "said"),
    [(0, "The first step had not ended. To start again, run the same command"), (2, "since the latest checkpoint")],
)
def test_ctrl_c_says_what_is_lost(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, said: str) -> None:
    def interrupted(config: Any, folder: Path, **_: Any) -> None:
        folder.mkdir()
        (folder / "metrics.jsonl").write_text("".join(f'{{"step": {step + 1}}}\n' for step in range(steps)))
        raise KeyboardInterrupt

    monkeypatch.setattr("palestra.cli.train._train", interrupted)
    with pytest.raises(Interrupted, match=said):
        palestra("train", recipe, "--out", tmp_path / "run")


def test_a_run_is_named_by_what_tells_it_apart() -> None:
    assert run_folder(Path("a/guess.toml"), ["steps=9", "seed=1"]) == Path("runs/guess,seed=1")
    for recipe in ("gpu/web-qwen2.5-7b", "web-qwen2.5-7b.toml"):
        assert run_folder(Path(recipe), []) == Path("runs/web-qwen2.5-7b")
    assert run_folder(Path("g.toml"), ["envs.game:X=1"]) == Path("runs/g,envs.game-X=1")


def test_preflight_says_what_is_wrong_before_the_first_step(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes \d+ tokens, and play.max_tokens is 2"):
        palestra("train", recipe, "play.max_tokens=2", "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    # No step was made, so the mended recipe may use the folder.
    palestra("train", recipe, "steps=1", "evaluation=none", "--out", tmp_path / "run")
    assert len(read_metrics(tmp_path / "run")) == 1


@pytest.mark.slow
def test_w_and_b_gets_the_same_numbers_offline(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logged: list[float] = []
    original = wandb.Run.log

    def log(self: Any, data: dict[str, Any], **how: Any) -> Any:
        logged.append(data["reward"])
        return original(self, data, **how)

    monkeypatch.setattr(wandb.Run, "log", log)
    palestra("train", recipe, "steps=2", "evaluation=none", "--no-check", "--wandb", "try", "--out", tmp_path)
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert logged == [line["reward"] for line in read_metrics(tmp_path)]


@pytest.mark.gate
@pytest.mark.slow
def test_ctrl_c_ends_a_run_after_a_whole_step_and_it_goes_on_from_there(recipe: Path, tmp_path: Path) -> None:
    long = [sys.executable, "-m", "palestra.cli", "train", str(recipe), "steps=100000", "evaluation=none"]
    options = ["--out", str(tmp_path), "--no-check", "checkpoint_every=100000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*long, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        while not run.stdout.readline().startswith("step 3/"):
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=300)
    assert run.returncode == 130
    assert re.search(r"stopped after step \d+ of 100000, with a checkpoint. To resume, run the same command again", said)
    done = len(read_metrics(tmp_path))
    palestra("train", recipe, f"steps={done + 1}", "evaluation=none", "--out", tmp_path, "--no-check")
    assert [line["step"] for line in read_metrics(tmp_path)] == list(range(1, done + 2))
