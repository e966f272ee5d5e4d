"""A run folder from a stranger is data: resuming it runs none of its content, whatever its manifest says."""

import hashlib
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palestra.durable.checkpoint import Checkpoints, FileEntry, Manifest, verify
from palestra.errors import PalestraError
from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._mark),)


@pytest.fixture(scope="module")
def config(tiny_model: Path) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(tiny_model)},
        "envs": {"game:GuessTheNumber-v0-easy": 1.0},
        "steps": 2,
        "play": {"tasks": 1, "group_size": 2, "max_tokens": 6},
        "warm_start": {"teacher": "random", "episodes": 4, "epochs": 1, "minibatches": 1},
        "checkpoint_every": 1,
    }
    return msgspec.convert(data, TrainConfig)


@pytest.fixture(scope="module")
def run(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(config, folder, check=False)
    return folder


def vouch(path: Path) -> None:
    """Write a manifest that is right about every file of the checkpoint."""
    old = verify_or_old(path)
    files = {
        str(file.relative_to(path)): FileEntry(file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in path.rglob("*")
        if file.is_file() and file.name != "manifest.json"
    }
    body = msgspec.json.encode(Manifest(old.step, files, old.notes))
    (path / "manifest.json").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert verify(path).step == old.step


def verify_or_old(path: Path) -> Manifest:
    return msgspec.json.decode((path / "manifest.json").read_bytes().partition(b"\n")[2], type=Manifest)


@pytest.mark.gate
@pytest.mark.slow
def test_a_poisoned_checkpoint_runs_no_code(config: TrainConfig, run: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", tmp_path / "run"
    shutil.copytree(run, folder)
    bomb = pickle.dumps(Bomb(mark))
    for path in Checkpoints(folder / "checkpoints").paths():
        targets = [file for file in path.rglob("*") if file.is_file() and file.name != "manifest.json"]
        (path / "learner").mkdir(exist_ok=True)
        for file in (*targets, path / "learner" / ".metadata", path / "generator-00000.pt"):
            file.write_bytes(bomb)
        vouch(path)
    with pytest.raises(PalestraError, match="learner-00000"):
        train(msgspec.structs.replace(config, steps=3), folder, check=False)
    assert not mark.exists()


def test_unknown_files_beside_a_good_checkpoint_are_never_opened(config: TrainConfig, run: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", tmp_path / "run"
    shutil.copytree(run, folder)
    for path in Checkpoints(folder / "checkpoints").paths():
        (path / "learner").mkdir(exist_ok=True)
        for file in (path / "learner" / ".metadata", path / "generator-00000.pt", path / "learner-00001.safetensors"):
            file.write_bytes(pickle.dumps(Bomb(mark)))
        vouch(path)
    train(msgspec.structs.replace(config, steps=3), folder, check=False)
    assert len(read_metrics(folder)) == 3
    assert not mark.exists()


def test_a_poisoned_warm_start_runs_no_code(config: TrainConfig, run: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "warm-start" / "model.safetensors").unlink()
    (folder / "warm-start" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(PalestraError, match="warm-start"):
        train(msgspec.structs.replace(config, steps=3), folder, check=False)
    assert not mark.exists()
