"""TextWorld's challenges: the oracle, determinism, the cache, what the interpreter must not get, hostile actions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.envs.textworld.plays import LEVELS, bare_outputs, oracle_wins

from palestra import make
from palestra.envs.textworld.commands import observed
from palestra.envs.textworld.games import game_file
from palestra.errors import UsageError
from palestra.trajectory import StopReason, Task

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(1800)]

COIN = "text:coin-easy"


@pytest.fixture(autouse=True, scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests make their own games, once."""
    os.environ["PALESTRA_HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("id", LEVELS)
def test_the_oracle_wins(id: str) -> None:
    assert oracle_wins(id, range(3)) == 3


@pytest.mark.parametrize("id", LEVELS)
def test_the_text_is_that_of_textworld(id: str) -> None:
    with make(id) as env:
        env.reset(task=Task(id, 0))
        commands, shown = [], []
        for turn in range(12):
            commands.append(env.sample_random_action() if turn % 2 else env.oracle())
            step = env.step(commands[-1])
            shown.append(str(step.observation))
            if step.terminated or step.truncated:
                break
        outputs = bare_outputs(env.unwrapped, commands)
    assert shown == [observed(text) for text in outputs]


def test_the_same_game_is_made_in_another_folder_and_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = game_file("coin", {"level": 3}, False, 11)
    script = "from palestra.envs.textworld.games import game_file; print(game_file('coin', {'level': 3}, False, 11).sha256)"
    variables = {**os.environ, "PALESTRA_HOME": str(tmp_path), "PYTHONHASHSEED": "5"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == here.sha256
    assert {path.name for path in here.story.parent.iterdir()} == {"game.z8", "game.json", "sha256"}


def test_a_damaged_game_is_made_again() -> None:
    made = game_file("coin", {"level": 3}, False, 12)
    whole = made.story.read_bytes()
    made.story.write_bytes(whole[:1000])
    assert game_file("coin", {"level": 3}, False, 12) == made
    assert made.story.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="Name another folder with PALESTRA_HOME"):
        game_file("coin", {"level": 3}, False, 13)


def test_settings_that_textworld_refuses_are_one_sentence() -> None:
    with pytest.raises(UsageError, match="TextWorld made no game of coin"):
        game_file("coin", {"level": 1000}, False, 0)


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


def test_the_goal_does_not_tell_the_way() -> None:
    with make(COIN) as env:
        observation, _ = env.reset(task=Task(COIN, 0))
        told = str(observation).partition("-= ")[0]
        assert "coin" in told
        assert not any(word in told for word in ("north", "east", "south", "west"))
    with make(COIN, directions=True) as env:
        observation, _ = env.reset(task=Task(COIN, 0))
        assert any(word in str(observation).partition("-= ")[0] for word in ("north", "east", "south", "west"))


def test_the_turn_limit_truncates() -> None:
    with make(COIN) as env:
        env.reset(task=Task(COIN, 0))
        for _ in range(19):
            assert not env.step("look").truncated
        last = env.step("look")
        assert last.truncated
        assert last.info["stop_reason"] == StopReason.TURN_LIMIT
        assert last.info["success"] is False
