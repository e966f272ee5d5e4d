"""``training.train`` is ``palestra train``: it evaluates, checks, claims its folder, and resumes."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from palestra.durable.checkpoint import Checkpoints
from palestra.errors import UsageError
from palestra.evaluation import read_report
from palestra.training import TrainConfig, train
from palestra.training.heldout import BestEvaluation, HeldOut
from palestra.training.record import read_metrics
from palestra.training.run import _train_until_stopped, claimed
from palestra.training.trainer import Trainer

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

GAME = "game:GuessTheNumber-v0-easy"


def config(folder: Path, /, **changes: Any) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(folder)},
        "envs": {GAME: 1.0},
        "steps": 2,
        "play": {"tasks": 2, "group_size": 2, "max_tokens": 16},
        "checkpoint_every": 1,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


def test_train_evaluates_on_held_out_tasks(tiny_model: Path, tmp_path: Path) -> None:
    train(config(tiny_model, evaluation={"every": 2, "n": 3}), tmp_path)
    assert ["evaluation/score" in line for line in read_metrics(tmp_path)] == [False, True]
    assert read_report(tmp_path / "evaluations" / "step-00000002").suite.issued == 3
    assert (
        (tmp_path / "evaluations" / "step-00000002" / "report.md").read_text().startswith(f"# {tiny_model.name} after step 2\n")
    )
    assert msgspec.json.decode((tmp_path / "config.json").read_bytes())["evaluation"]["n"] == 3


async def test_train_works_where_a_loop_is_running_already(tiny_model: Path, tmp_path: Path) -> None:
    train(config(tiny_model, steps=1), tmp_path, check=False)
    assert len(read_metrics(tmp_path)) == 1


def test_train_checks_the_run_before_its_first_step(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"play\.max_tokens is 2"):
        train(config(tiny_model, play={"tasks": 1, "group_size": 2, "max_tokens": 2}), tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "named"), [({"seed": 1}, "seed was 0 and is now 1"), ({"advantage": {"method": "grpo"}}, "advantage.method")]
)
def test_another_run_in_the_same_folder_is_refused_and_changes_nothing(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    train(config(tiny_model, steps=1), tmp_path, check=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=named):
        train(config(tiny_model, **changes), tmp_path, check=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_same_run_resumes_and_says_from_where(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    train(config(tiny_model, steps=1), tmp_path, check=False, say=said.append)
    train(config(tiny_model, steps=2), tmp_path, check=False, say=said.append)
    assert said == ["resuming from step 1 of 2"]
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]


@pytest.mark.gate
@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(tiny_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    train(config(tiny_model), tmp_path, check=False)
    (tmp_path / "checkpoints" / "step-00000002" / "learner-00000.safetensors").write_bytes(b"damaged")
    train(config(tiny_model, steps=3), tmp_path, check=False, say=said.append)
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2, 3]
    assert "step-00000002 is damaged" in said[0]
    assert said[1:] == ["resuming from step 1 of 3"]


def test_two_trainers_cannot_share_a_folder(tiny_model: Path, tmp_path: Path) -> None:
    settings = config(tiny_model, warm_start={"episodes": 4})
    with claimed(settings, tmp_path), pytest.raises(UsageError, match="is in use by"):
        train(settings, tmp_path, check=False)
    assert not (tmp_path / "warm-start").exists(), "the second trainer is refused before it builds anything"


def test_a_folder_without_a_finished_step_becomes_the_new_run(tiny_model: Path, tmp_path: Path) -> None:
    lessons = {"teacher": "random", "episodes": 4, "epochs": 1, "minibatches": 1}
    first = config(tiny_model, steps=1, warm_start=lessons)
    with claimed(first, tmp_path):
        (tmp_path / "warm-start").mkdir()
        (tmp_path / "vocabulary.json").write_text("[]")
    train(msgspec.structs.replace(first, seed=1), tmp_path, check=False)
    assert (tmp_path / "warm-start" / "model.safetensors").exists()
    assert (tmp_path / "vocabulary.json").stat().st_size > 2


@pytest.mark.gate
@pytest.mark.slow
def test_evaluations_of_steps_that_are_made_again_are_removed(tiny_model: Path, tmp_path: Path) -> None:
    settings = config(tiny_model, steps=1, evaluation={"every": 1, "n": 2})
    train(settings, tmp_path, check=False)
    stale = tmp_path / "evaluations" / "step-00000002"
    stale.mkdir()
    (stale / "report.json").write_text("of weights that a crash has lost")
    train(msgspec.structs.replace(settings, steps=2), tmp_path, check=False)
    assert read_report(stale).suite.issued == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": "/nowhere/model"}, r'model\.path = "/nowhere/model" cannot be loaded'),
        ({"device": "banana"}, r'model\.device = "banana" is not a device'),
        ({"device": "cuda"}, r"model\.device=cpu"),
    ],
)
def test_a_model_or_device_that_is_not_there_is_named_with_what_to_type(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match=said):
        train(config(tiny_model, model={"path": str(tiny_model), **changes}), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*choose another folder"):
        train(config(tiny_model), tmp_path / "file" / "run")


class Signalled:
    """Stands for a trainer: sends itself ``numbers`` one by one, and makes a step between them."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.numbers = numbers
        self.stop_requested = False
        self.answers: list[bool] = []
        self.say = lambda _: None

    async def train(self) -> None:
        for number in self.numbers:
            os.kill(os.getpid(), number)
            for _ in range(20):  # the loop reads the signal from a socket
                await asyncio.sleep(0)
            self.answers.append(self.stop_requested)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_after_its_step(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    try:
        if number is signal.SIGHUP:  # nohup may have started the tests
            signal.signal(number, signal.SIG_DFL)
        once = Signalled(number)
        asyncio.run(_train_until_stopped(once))  # type: ignore[arg-type]
        assert once.answers == [True]
        twice = Signalled(number, number)
        if number is signal.SIGHUP:  # a closed terminal may send it twice
            asyncio.run(_train_until_stopped(twice))  # type: ignore[arg-type]
        else:
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(_train_until_stopped(twice))  # type: ignore[arg-type]
        assert twice.stop_requested
    finally:
        signal.signal(number, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        trainer = Signalled(signal.SIGHUP)
        asyncio.run(_train_until_stopped(trainer))  # type: ignore[arg-type]
        assert trainer.answers == [False]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def restored(saved: BestEvaluation, folder: Path, said: list[str], **evaluation: Any) -> BestEvaluation:
    """The progress of a run that resumes after step 3 with ``saved``."""
    settings = config(folder, evaluation={"every": 1, "keep_best": True, **evaluation})
    held_out = HeldOut(settings.evaluation, tuple(settings.envs), settings.seed, settings.play, folder, said.append)
    resumed = SimpleNamespace(held_out=held_out, checkpoints=Checkpoints(folder))
    Trainer._restore_best(resumed, saved, 3)  # type: ignore[arg-type]
    return held_out.progress


def test_a_crash_before_the_best_checkpoint_had_its_name_is_repaired(tmp_path: Path) -> None:
    said: list[str] = []
    saved = BestEvaluation(0.9, 2, 1, "score", 0.0)
    assert restored(saved, tmp_path, said) is saved
    assert not (tmp_path / "best").exists()
    saved = BestEvaluation(0.9, 3, 0, "score", 0.0)
    assert restored(saved, tmp_path, said) is saved
    assert (tmp_path / "best").read_text() == "step-00000003\n"
    assert said == []


@pytest.mark.parametrize("change", [{"metric": "success"}, {"temperature": 1.0}])
def test_another_metric_or_temperature_forgets_the_best_evaluation(tmp_path: Path, change: dict[str, Any]) -> None:
    said: list[str] = []
    found = restored(BestEvaluation(0.9, 3, 2, "score", 0.0), tmp_path, said, **change)
    assert (found.best, found.best_step, found.worse) == (None, -1, 0)
    assert found.after(4, 0.4).after(5, 0.3) == BestEvaluation(0.4, 4, 1, found.metric, found.temperature)
    assert said == ["evaluation.metric or evaluation.temperature has changed: the best checkpoint is chosen anew"]
    assert not (tmp_path / "best").exists()
