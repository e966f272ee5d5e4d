"""TextWorld's challenges: the oracle, determinism, the cache, what the interpreter must not get, hostile actions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from palestra import make
from palestra.errors import UsageError
from palestra.trajectory import Task
from palestra.worlds.textworld.games import game_file

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(1800)]

COIN = "text:coin-easy"


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests make their own games, once."""
    os.environ["PALESTRA_HOME"] = str(tmp_path_factory.mktemp("home"))


def test_the_same_game_is_made_in_another_folder_and_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = game_file("coin", {"level": 3}, False, 11)
    script = "from palestra.worlds.textworld.games import game_file; print(game_file('coin', {'level': 3}, False, 11).sha256)"
    variables = {**os.environ, "PALESTRA_HOME": str(tmp_path), "PYTHONHASHSEED": "5"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == here.sha256
    assert {path.name for path in here.story.parent.iterdir()} == {"game.z8", "game.json", "sha256"}


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="Name another folder with PALESTRA_HOME"):
        game_file("coin", {"level": 3}, False, 13)


def test_commands_of_the_interpreter_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make(COIN) as env:
        env.reset(task=Task(COIN, 0))
        kept = game_file("coin", {"level": 3}, False, 11).story.parent.parent.parent
        before = sorted(path.name for path in kept.rglob("*"))
        for command in ("save", "script", "restart", "quit", "y", "restore", "undo", "tw-trace-actions", "take coin. save"):
            step = env.step(command)
            assert step.info["format_error"]
            assert "contains no command" in str(step.observation)
        assert "-= " in str(env.step("look").observation)
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in kept.rglob("*")) == before
