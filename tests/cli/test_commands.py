"""The commands as a user meets them: output, messages, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app

runner = CliRunner()


def palestra(*arguments: str, typed: str = "") -> str:
    done = runner.invoke(app, list(arguments), input=typed, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palestra.cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=100
    )


def test_list_shows_a_row_per_family() -> None:
    rows = [line for line in palestra("list", "game").splitlines() if line.startswith("game:")]
    assert any(row.startswith("game:Sudoku-v0 ") for row in rows)
    assert not any("-easy" in row.split()[0] for row in rows)


def test_list_shows_levels_when_asked_for_them() -> None:
    assert "game:Sudoku-v0-easy" in palestra("list", "game:*-easy")


def test_list_json_has_every_id_with_its_level() -> None:
    specs = {spec["id"]: spec for spec in json.loads(palestra("list", "--json"))}
    assert specs["game:GuessTheNumber-v0-easy"]["max_turns"] == 4
    assert specs["game:GuessTheNumber-v0"]["level"] == "hard"


def test_a_mistake_is_one_line_and_exit_code_2() -> None:
    done = command("play", "game:Sudok-v0")
    assert done.returncode == 2
    wanted = 'UnknownEnv: no environment "game:Sudok-v0". Did you mean "game:Sudoku-v0"? (palestra list game)'
    assert done.stderr.strip() == wanted


def test_a_warning_is_one_line_without_the_place_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import warnings\n"
        "from palestra.envs.games.guess_the_number import GuessTheNumber\n"
        "class Loud(GuessTheNumber):\n"
        "    def begin(self):\n"
        "        super().begin()\n"
        "        warnings.warn('mind the step')\n"
    )
    done = command("rollout", "random", "--envs", "loud:Loud", "-n", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: mind the step\n" in done.stderr
    assert "loud.py" not in done.stderr


def test_nothing_found_is_a_mistake() -> None:
    done = command("list", "nosuchthing")
    assert done.returncode == 2
    assert "no environment matches" in done.stderr


def test_play_wraps_a_bare_move_and_shows_the_oracle() -> None:
    shown = palestra("play", "game:GuessTheNumber-v0-easy", "--seed", "0", typed="?\n5\n0\n0\n0\n")
    assert "\\boxed{5}" in shown
    assert "you guessed 5" in shown
    assert "turns, total reward" in shown or "1 turn, total reward" in shown


def test_play_can_be_left() -> None:
    assert "You left the game." in palestra("play", "game:GuessTheNumber-v0-easy", typed="")


def test_check_says_ok_by_exit_code_and_json(tmp_path: Path) -> None:
    done = command("check", "game:GuessTheNumber-v0-easy", "-n", "20", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_check_fails_by_exit_code(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from palestra import Env, Step\n"
        "import random\n"
        "class Bad(Env):\n"
        "    def reset(self, *, seed=None, task=None):\n"
        "        super().reset(seed=seed, task=task)\n"
        "        return str(random.random()), {}\n"
        "    def step(self, action):\n"
        "        return Step('', 1.0, True, False, {})\n"
    )
    done = command("check", "bad:Bad", "-n", "20", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗" in done.stdout


def test_demo_leaves_one_self_contained_page(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    shown = palestra("demo", "-n", "3", "--out", str(page))
    assert "Sudoku-v0-easy" in shown
    html = page.read_text()
    assert "src=" not in html.split("<script")[0]
    assert "http://" not in html
    assert "https://" not in html


def test_doctor_names_what_is_installed() -> None:
    report = json.loads(palestra("doctor", "--json"))
    assert set(report["core"]) >= {"msgspec", "numpy"}
    assert len(report["core"]) <= 6
    assert "environment ids can be made here" in palestra("doctor")


@pytest.mark.parametrize("name", ["list", "play", "demo", "check", "doctor", "serve"])
def test_every_command_has_help(name: str) -> None:
    assert name in palestra("--help")
    assert "--help" in palestra(name, "--help")


def test_version() -> None:
    from palestra import __version__

    assert palestra("--version").strip() == f"palestra {__version__}"


def test_play_lends_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["<python>6 * 7</python>", "?"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    done = CliRunner().invoke(app, ["play", "game:GuessTheNumber-v0-easy", "--seed", "0", "--tool", "python"])
    assert "\n42\n" in done.output
    refused = CliRunner().invoke(app, ["play", "game:GuessTheNumber-v0-easy", "--tool", "hammer"])
    assert "no tool 'hammer'" in str(refused.exception)
