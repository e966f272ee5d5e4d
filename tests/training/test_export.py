"""A trained model comes out of its run folder as one that transformers loads."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import transformers
from tests.training.tiny import learner_of
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.foundation.home import new_model
from palestra.inference.servers.publishing import PolicyWeights, PublishedWeights
from palestra.recipes.model import ModelConfig
from palestra.training import TrainConfig, export_model, train
from palestra.training.heldout import HeldOut
from palestra.training.learner.loading import load_model
from palestra.training.learner.state import StateReader

pytestmark = pytest.mark.torch


def run(path: Path, **settings: Any) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(path), **settings.pop("model", {})},
        "envs": {"game:GuessTheNumber-v0-easy": 1.0},
        "steps": 1,
        "play": {"tasks": 1, "group_size": 2, "max_tokens": 4, "cut": 1.0},
        "learner": {"learning_rate": 1e-1},
        **settings,
    }
    return msgspec.convert(data, TrainConfig)


def logits(folder: Path | str) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=torch.arange(1, 9).unsqueeze(0)).logits
    return out


@pytest.mark.parametrize(
    "settings",
    [
        {"model": {"critic": True}, "advantage": {"method": "ppo_turn", "whiten": False}},
        {"model": {"lora": {"rank": 2}}, "advantage": {"method": "reinforce"}},
        {
            "warm_start": {"teacher": "random", "episodes": 2, "epochs": 1, "minibatches": 1},
            "advantage": {"method": "reinforce"},
        },
    ],
    ids=["critic", "lora", "warm start"],
)
def test_the_exported_model_is_the_learners(settings: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    trained = train(run(tiny_model, **settings), tmp_path / "run", check=False)
    done = CliRunner().invoke(app, ["model", "export", str(tmp_path / "run")], catch_exceptions=False)
    folder = Path(done.stdout.strip())
    assert folder == tmp_path / "run" / "model"
    # The same weights by another way: those that the learner publishes for engines.
    published = PublishedWeights(str(tmp_path / "weights"), str(tiny_model)).write(PolicyWeights(trained.learner), 1)
    assert torch.allclose(logits(folder), logits(published), atol=1e-5)
    assert not torch.allclose(logits(folder), logits(tiny_model), atol=1e-3), "the run has changed the model"
    tokenizer, before = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, tiny_model))
    assert tokenizer.get_vocab() == before.get_vocab()
    assert tokenizer.chat_template == before.chat_template
    card = (folder / "README.md").read_text()
    assert all(part in card for part in ("after 1 steps", "| 1 | ", '"group_size": 2')), "steps, curves and recipe"
    sampling = transformers.GenerationConfig.from_pretrained(folder)
    assert (sampling.temperature, sampling.top_k, sampling.repetition_penalty, sampling.max_new_tokens) == (1.0, 0, 1.0, 4)
    with pytest.raises(UsageError, match="is not empty: replace it with --overwrite, or name another folder with --out"):
        export_model(tmp_path / "run")
    halves = export_model(tmp_path / "run", dtype="bfloat16", overwrite=True)
    assert halves == folder
    assert transformers.AutoModelForCausalLM.from_pretrained(halves).dtype is torch.bfloat16


def test_overwriting_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not a model: name another folder"), new_model(tmp_path, replace=True):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_is_no_trained_run_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not hold a training run"):
        export_model(tmp_path)
    (tmp_path / "config.json").write_text('{"run": "evaluation"}')
    with pytest.raises(UsageError, match="name the folder that palestra train wrote"):
        export_model(tmp_path)
    config = msgspec.to_builtins(run(tiny_model))
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"run": "training", **config}))
    with pytest.raises(UsageError, match="has no complete checkpoint"):
        export_model(tmp_path)


def test_exporting_imports_nothing_that_the_run_names(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "bomb.py").write_text("raise SystemExit('imported')")
    folder = tmp_path / "run"
    train(run(tiny_model, advantage={"method": "reinforce"}), folder, check=False)
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    config["advantage"]["method"] = config["policy"] = config["learner"]["loss"]["kind"] = "bomb:part"
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    config["model"]["attention"] = "somebody/kernel"  # transformers would download it and run its code
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    assert export_model(folder, tmp_path / "out").exists()
    config["model"]["path"] = "tiny:bomb:Env"
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(UsageError, match="has not been built on this machine"):
        export_model(folder)


def test_publishing_keeps_two_versions_and_drops_later_ones(tiny_model: Path, tmp_path: Path) -> None:
    weights = PolicyWeights(learner_of(network=load_model(ModelConfig(str(tiny_model)))))
    published = PublishedWeights(str(tmp_path), str(tiny_model))
    assert published.newest() is None
    for version in (0, 1, 2, 3):
        published.write(weights, version)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["version-00000002", "version-00000003"]
    published.write(weights, 2)  # a learner that resumed from an earlier checkpoint
    assert published.newest() == (tmp_path / "version-00000002", 2)


def _evaluated(config: TrainConfig, folder: Path, scores: list[float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run ``config`` with evaluations that find these scores. Returns what the run said."""
    rest = iter(scores)

    async def scored(*_: Any) -> dict[str, float]:
        return {"score": next(rest), "coverage": 1.0}

    monkeypatch.setattr(HeldOut, "scores", scored)
    said: list[str] = []
    train(config, folder, check=False, say=said.append)
    return said


@pytest.mark.gate
@pytest.mark.slow
def test_the_best_checkpoint_is_kept_and_a_run_without_progress_ends(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = {"every": 1, "n": 2, "keep_best": True, "patience": 3}
    config = run(tiny_model, steps=9, evaluation=evaluation, checkpoint_every=2, advantage={"method": "reinforce"})
    said = _evaluated(config, tmp_path / "run", [0.1, 0.2, 0.5, 0.3, 0.5, 0.4], monkeypatch)
    assert said[0] == "before the first step: score 0.100"
    assert said[-1] == "the run ends early: 3 evaluations in a row were not better than 0.500 after step 2"
    folders = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert folders == ["step-00000002", "step-00000004", "step-00000005"]
    assert (tmp_path / "run" / "checkpoints" / "best").read_text() == "step-00000002\n"
    assert "after 2 steps" in (export_model(tmp_path / "run", tmp_path / "best", best=True) / "README.md").read_text()
    assert "after 5 steps" in (export_model(tmp_path / "run", tmp_path / "newest") / "README.md").read_text()
    again = _evaluated(config, tmp_path / "run", [], monkeypatch)
    assert again[-1].startswith("the run ends early: 3 evaluations")


def test_an_adapter_checkpoint_holds_no_frozen_weights(tiny_model: Path, tmp_path: Path) -> None:
    train(run(tiny_model, model={"lora": {"rank": 2}}, advantage={"method": "reinforce"}), tmp_path, check=False)
    names = StateReader(tmp_path / "checkpoints" / "step-00000001").names()
    assert names
    assert not [name for name in names if name.startswith(("model.", "optimizer.")) and "lora" not in name]
    with pytest.raises(UsageError, match=r"has no best checkpoint: set evaluation.keep_best"):
        export_model(tmp_path, best=True)
