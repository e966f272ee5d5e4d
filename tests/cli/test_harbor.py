"""``palestra harbor``: new, check and build from the command line."""

import json
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pyseccomp")

from palestra.cli.app import run_command
from palestra.errors import UsageError
from palestra.worlds.harbor.env import harbor_cache
from tests.worlds.harbor.folders import write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))


def test_a_task_from_new_to_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "tasks/mine")
    assert run_command(["harbor", "new", folder]) == 0
    assert run_command(["harbor", "check", folder]) == 0
    assert "not run: class: no root file system for the image debian:12" in capsys.readouterr().out
    assert run_command(["harbor", "build", folder, "--host", "debian:12"]) == 0
    lines = ["debian:12: this machine's /usr", "local/mine: environment, 2 steps in a box", "local/mine: built"]
    assert capsys.readouterr().out.splitlines() == lines
    assert run_command(["harbor", "check", folder]) == 0
    shown = capsys.readouterr().out
    assert "class 1  solution 1 nothing 0" in shown
    assert shown.splitlines()[-1] == "1 tasks (1 of class 1): 0 failed, 0 holes"
    with pytest.raises(UsageError, match="exists already"):
        run_command(["harbor", "new", folder])
    with pytest.raises(UsageError, match="is not the name of a task"):
        run_command(["harbor", "new", str(tmp_path / "two words")])


def test_terminal_tasks_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "harbor export terminal:golf-v0-hard OUT -n 2 --seed 4 --image mine:1 --json".replace("OUT", str(tmp_path))
    assert run_command(words.split()) == 0
    folders = json.loads(capsys.readouterr().out)["folders"]
    assert folders == [f"{tmp_path}/golf-v0-hard-0004", f"{tmp_path}/golf-v0-hard-0005"]
    assert Path(folders[0], "tests/Dockerfile").read_text().startswith("FROM mine:1\n")


def test_json_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "set/good")
    write(tmp_path / "set/bad", {"instruction.md": None})
    write(tmp_path / "set/big", {"instruction.md": "Another.\n"}, toml="[environment]\ngpus = 1\n")
    assert run_command(["harbor", "check", str(tmp_path / "set"), "--host", "--json"]) == 1
    rows = {row["task"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {name: (row["kind"], row["ok"], row["oracle"]) for name, row in rows.items()} == {
        "bad": (0, False, None),
        "big": (3, True, None),
        "good": (1, True, 1.0),
    }


def test_build_says_what_it_cannot_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "task", {"environment/Dockerfile": "FROM debian:12\nRUN apt-get update\n"})
    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(folder, "etc")
    assert run_command(["harbor", "build", str(folder), "--image", f"debian:12={tmp_path}/root.tar"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"debian:12: unpacking {tmp_path}/root.tar\n")
    assert "task: class 2: Dockerfile line 2: RUN apt-get update needs a network" in shown
    assert harbor_cache().find("debian:12") is not None
    with pytest.raises(UsageError, match="write NAME=VALUE"):
        run_command(["harbor", "build", "--image", "debian"])
