"""A run folder from a stranger is data: resuming it runs none of its content, whatever its manifest says."""

import hashlib
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.strangers import KINDS, SECRET, Outside, refused_or_done

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
        "play": {"tasks": 1, "group_size": 2, "max_tokens": 6, "concurrency": 1},
        "engine": {"batch": 1, "rows": 1},  # so that two runs are equal to the bit
        "warm_start": {"teacher": "random", "episodes": 4, "epochs": 1, "minibatches": 1},
        "checkpoint_every": 1,
    }
    return msgspec.convert(data, TrainConfig)


@pytest.fixture(scope="module")
def run(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    train(config, folder, check=False)
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


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
def test_a_poisoned_checkpoint_runs_no_code(config: TrainConfig, copied: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", copied
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


def test_unknown_files_beside_a_good_checkpoint_are_never_opened(config: TrainConfig, copied: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", copied
    for path in Checkpoints(folder / "checkpoints").paths():
        (path / "learner").mkdir(exist_ok=True)
        for file in (path / "learner" / ".metadata", path / "generator-00000.pt", path / "learner-00001.safetensors"):
            file.write_bytes(pickle.dumps(Bomb(mark)))
        vouch(path)
    train(msgspec.structs.replace(config, steps=3), folder, check=False)
    assert len(read_metrics(folder)) == 3
    assert not mark.exists()


def test_a_poisoned_warm_start_runs_no_code(config: TrainConfig, copied: Path, tmp_path: Path) -> None:
    mark, folder = tmp_path / "code has run", copied
    (folder / "warm-start" / "model.safetensors").unlink()
    (folder / "warm-start" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(PalestraError, match="warm-start"):
        train(msgspec.structs.replace(config, steps=3), folder, check=False)
    assert not mark.exists()


# ------------------------------------------------------------------------------------- every file in the place of every kind

NEWEST = "checkpoints/step-00000002"
FILES = (
    *("config.json", "metrics.jsonl", "trajectories.jsonl", "ledger", "vocabulary.json", ".lock", ".config.json.part"),
    *("checkpoints", "warm-start", "evaluations", "weights", "warm-start/model.safetensors", "warm-start/config.json"),
    *("checkpoints/latest", "checkpoints/best", "checkpoints/latest.new", "checkpoints/.writing-00000003"),
    *("checkpoints/step-00000003", "checkpoints/.discarded-step-00000001", NEWEST, f"{NEWEST}/manifest.json"),
    *(f"{NEWEST}/groups.jsonl", f"{NEWEST}/learner-00000.json", f"{NEWEST}/learner-00000.safetensors"),
)
STRAYS = (".foo-bar", ".a-b", "step-00000001.tar", "step-00000002 (copy)", "step-9", "step-999999999999999", "notes.txt")


def state(folder: Path) -> tuple[dict[str, FileEntry], bytes]:
    """What a run has learned, and its ledger."""
    found = Checkpoints(folder / "checkpoints").newest()
    assert found is not None
    assert found[1].step == 3
    return found[1].files, (folder / "ledger").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(config: TrainConfig, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    shutil.copytree(run, folder)
    train(msgspec.structs.replace(config, steps=3), folder, check=False)
    return state(folder)


def resumed(config: TrainConfig, folder: Path) -> tuple[str, list[str]]:
    """Resume the run to its third step. Return what the refusal says, and the notes."""
    notes: list[str] = []
    settings = msgspec.structs.replace(config, steps=3)
    return refused_or_done(lambda: train(settings, folder, check=False, say=notes.append)), notes


SAMPLED_FILES = {
    ("metrics.jsonl", "garbage"),
    ("trajectories.jsonl", "garbage"),
    ("ledger", "folder"),
    ("checkpoints", "link to a folder"),
    ("checkpoints/latest", "folder"),
    ("checkpoints/latest.new", "link to a file"),
    (f"{NEWEST}/learner-00000.safetensors", "link to the same content"),
    ("warm-start/model.safetensors", "link to a file"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=pytest.mark.slow if (name, kind) in SAMPLED_FILES else pytest.mark.full)
        for name in FILES
        for kind in KINDS
    ],
)
def test_what_stands_in_the_place_of_a_file_costs_neither_the_run_nor_what_is_outside(
    config: TrainConfig, copied: Path, undisturbed: Any, tmp_path: Path, name: str, kind: str
) -> None:
    outside, folder = Outside(tmp_path / "outside"), copied
    (folder / name).parent.mkdir(exist_ok=True)
    KINDS[kind](folder / name, outside)
    said, _ = resumed(config, folder)
    outside.check()
    outside.check_not_in(folder)
    if said:
        assert "checkpoints/" not in name, f"a checkpoint never ends a run: {said}"
        assert name.partition("/")[0].removeprefix(".").partition(".part")[0] in said or kind == "garbage"
    else:
        assert state(folder) == undisturbed


@pytest.mark.slow
def test_stray_files_beside_the_checkpoints_stay_and_end_no_run(
    config: TrainConfig, copied: Path, undisturbed: Any, tmp_path: Path
) -> None:
    outside, folder = Outside(tmp_path / "outside"), copied
    checkpoints = folder / "checkpoints"
    for name in STRAYS:
        (checkpoints / name).write_bytes(b"mine")
    (checkpoints / ".a-link").symlink_to(outside.folder)
    (checkpoints / "step-00000009").symlink_to(outside.folder / "deep")
    (checkpoints / "best").write_bytes(b"\xff" * 5000)
    said, _ = resumed(config, folder)
    outside.check()
    assert said == ""
    assert state(folder) == undisturbed
    assert {name: (checkpoints / name).read_bytes() for name in STRAYS} == dict.fromkeys(STRAYS, b"mine")
    assert (checkpoints / ".a-link").is_symlink()


def rehashed(manifest: Path, **changes: Any) -> None:
    """Change a manifest as a stranger would, with a hash that is right."""
    data = msgspec.json.decode(manifest.read_bytes().partition(b"\n")[2])
    for name, value in changes.items():
        if name in ("step", "files") or value is None:
            data[name] = value
        else:
            data["notes"][name] = value
    body = msgspec.json.encode({name: value for name, value in data.items() if value is not None})
    manifest.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


HOSTILE: dict[str, dict[str, Any]] = {
    "a step below 0": {"step": -1},
    "a step far ahead": {"step": 10**9},
    "an older step": {"step": 1},
    "no notes": {"notes": None},
    "a ledger that is text": {"ledger": "x"},
    "a ledger before its beginning": {"ledger": {"size": -5, "checksum": "0" * 16}},
    "an empty ledger": {"ledger": {"size": 0, "checksum": "0" * 16}},
    "outcomes that are a number": {"outcomes": 5},
    "an entropy that is text": {"entropy_coefficient": "x"},
    "progress that is a list": {"progress": []},
    "rows that are text": {"rows": "x"},
    "versions that are text": {"kept": {"0": "x"}},
    "a file outside": {
        "files": {"../../../outside/secret": {"size": len(SECRET), "sha256": hashlib.sha256(SECRET).hexdigest()}}
    },
    "a device": {"files": {"/dev/zero": {"size": 0, "sha256": "0" * 64}}},
}


SAMPLED = ("a step below 0", "a step far ahead", "no notes", "outcomes that are a number")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=name, marks=pytest.mark.slow if name in SAMPLED else pytest.mark.full)
        for name, changes in HOSTILE.items()
    ],
)
def test_the_checkpoint_before_a_hostile_manifest_is_taken(
    config: TrainConfig, copied: Path, undisturbed: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    Outside(tmp_path / "outside")
    folder = copied
    rehashed(folder / NEWEST / "manifest.json", **changes)
    said, notes = resumed(config, folder)
    assert said == ""
    assert any("resuming from an earlier checkpoint" in note for note in notes)
    assert state(folder) == undisturbed


@pytest.mark.slow
def test_a_hostile_checkpoint_of_a_step_far_ahead_does_not_end_the_run(
    config: TrainConfig, copied: Path, undisturbed: Any, tmp_path: Path
) -> None:
    folder = copied
    ahead = folder / "checkpoints" / "step-1000000000"
    shutil.copytree(folder / NEWEST, ahead)
    rehashed(ahead / "manifest.json", step=10**9)
    said, _ = resumed(config, folder)
    assert said == ""
    assert (folder / "ledger").read_bytes() == undisturbed[1]
    assert len(read_metrics(folder)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["removed", "emptied"])
def test_metrics_that_are_gone_are_missed_aloud(config: TrainConfig, copied: Path, tmp_path: Path, damage: str) -> None:
    folder = copied
    metrics = folder / "metrics.jsonl"
    metrics.unlink() if damage == "removed" else metrics.write_bytes(b"")
    said, notes = resumed(config, folder)
    assert "holds no steps" in said or any("lacks the metrics of 2 of 2 steps" in note for note in notes)
