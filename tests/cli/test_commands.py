"""The commands as a user meets them: output, messages, exit codes."""

import errno
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from palestra.cli import doctor, main
from palestra.cli.app import _COMMANDS, app, app_for
from palestra.errors import UsageError
from palestra.installation import how_to_install
from palestra.registry import Need
from palestra.studies.packing import read_packed

runner = CliRunner()


def palestra(*arguments: str, typed: str = "") -> str:
    done = runner.invoke(app, list(arguments), input=typed, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "palestra.cli", *arguments], check=False, cwd=cwd, capture_output=True, text=True, timeout=300
    )


def test_list_shows_a_row_per_family() -> None:
    rows = [line for line in palestra("list", "game").splitlines() if line.startswith("game:")]
    assert any(row.startswith("game:Sudoku-v0 ") for row in rows)
    assert not any("-easy" in row.split()[0] for row in rows)


def test_list_shows_levels_when_asked_for_them() -> None:
    assert "game:Sudoku-v0-easy" in palestra("list", "game:*-easy")


def test_the_whole_list_has_a_row_per_namespace_and_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = palestra("list").splitlines()
    assert len(lines) <= 40
    assert all(len(line) <= 80 for line in lines)
    names = [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert [name for name in names if name in ("game", "rg", "web")] == ["game", "rg", "web"]
    assert all(len(line) <= 80 for line in palestra("list", "game").splitlines())


def test_list_filters_by_tag_and_by_what_can_run_here() -> None:
    found = json.loads(palestra("list", "--tag", "tools", "--tag", "multi-turn", "--json"))
    assert found
    assert all({"tools", "multi-turn"} <= set(spec["tags"]) for spec in found)
    assert not any(spec["missing"] for spec in json.loads(palestra("list", "game", "--ready", "--json")))
    done = runner.invoke(app, ["list", "game", "--tag", "nosuch"])
    assert 'no environment here has the tag "nosuch": the tags are arithmetic, chance' in str(done.exception)


def test_a_pipe_gets_no_colours() -> None:
    for arguments in (["list"], ["list", "game"], ["list", "worlds"], ["show", "game:Sudoku-v0"]):
        assert "\x1b" not in palestra(*arguments)


def test_list_shows_every_family_of_a_large_namespace_when_asked() -> None:
    assert sum(line.startswith("rg:") for line in palestra("list", "rg").splitlines()) > 100
    assert sum(spec["namespace"] == "rg" for spec in json.loads(palestra("list", "--json"))) > 100


def test_list_json_has_every_id_with_its_level() -> None:
    specs = {spec["id"]: spec for spec in json.loads(palestra("list", "--json"))}
    assert specs["game:GuessTheNumber-v0-easy"]["max_turns"] == 4
    assert specs["game:GuessTheNumber-v0"]["level"] == "hard"


@pytest.mark.parametrize(
    ("line", "words"), [("play game:Sudok-v0", '"game:Sudoku-v0"'), ("list nosuchthing", "no environment matches")]
)
def test_a_mistake_is_one_line_and_exit_code_2(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert words in sentence


@pytest.mark.slow
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


def test_play_wraps_a_bare_move_and_shows_the_oracle() -> None:
    shown = palestra("play", "game:GuessTheNumber-v0-easy", "--seed", "0", typed="?\n5\n0\n0\n0\n")
    assert "perfect player: \\boxed{5}" in shown
    assert "you guessed 5" in shown
    assert "turns, total reward" in shown or "1 turn, total reward" in shown


def test_play_can_be_left() -> None:
    assert "You left the game." in palestra("play", "game:GuessTheNumber-v0-easy", typed="")


@pytest.mark.slow
def test_check_says_ok_by_exit_code_and_json() -> None:
    done = runner.invoke(app, ["check", "game:GuessTheNumber-v0-easy", "-n", "20", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["ok"] is True


@pytest.mark.slow
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


def test_every_command_that_has_a_result_prints_it_as_json() -> None:
    def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from commands(one, (*path, name))
            else:
                yield " ".join((*path, name)), one

    found = dict(commands(typer.main.get_command(app)))
    without = {name for name, one in found.items() if not any("--json" in option.opts for option in one.params)}
    assert len(found) > 30
    assert without == {"play"}  # a person plays


def test_demo_leaves_one_self_contained_page(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    shown = palestra("demo", "-n", "3", "--out", str(page))
    assert "FrozenLake-v0-easy" in shown
    html = page.read_text()
    assert "src=" not in html.split("<script")[0]
    assert "http://" not in html
    assert "https://" not in html


def test_demo_shows_its_scores_even_if_the_page_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("palestra.cli.demo._page", full)
    ended = CliRunner().invoke(app, ["demo", "-n", "2", "--out", str(tmp_path / "demo.html")])
    assert "FrozenLake" in ended.stdout
    assert isinstance(ended.exception, OSError)
    assert ended.exception.filename == str(tmp_path / "demo.html")


@pytest.mark.slow
def test_doctor_names_what_is_installed() -> None:
    report = json.loads(palestra("doctor", "--json"))
    assert set(report["core"]) >= {"msgspec", "numpy"}
    assert len(report["core"]) <= 6
    shown = palestra("doctor")
    assert "environment ids can be made here" in shown
    # A line is wrapped at 80 columns: its second line is indented like the text of the first. What to type has more.
    assert all(re.match("  [✓·] |    [^ ]|      [^ ]", line) for line in shown.splitlines()[1:])
    assert "\n    " in shown


def test_doctor_breaks_no_command_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"pip install --editable '/home/{'me/' * 40}[nothing]'"
    monkeypatch.setattr(doctor, "how_to_install", lambda extra: command)
    monkeypatch.setattr(doctor, "_extras", lambda: ["nothing"])
    monkeypatch.setattr(doctor, "_requirements", lambda extra: ["no-such-package"] if extra else [])
    monkeypatch.setattr(doctor, "_try_box", lambda: doctor._Box(True, "a box"))
    monkeypatch.setattr(doctor, "list_envs", list)
    assert f"      {command}" in palestra("doctor").splitlines()


def test_doctor_names_a_need_once_if_an_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [
        Need(label="math-verify", module="nosuch", extra="math"),
        Need(label="ScienceWorld", program="nosuch", fix="get it"),
    ]
    monkeypatch.setattr(doctor, "list_envs", lambda: [SimpleNamespace(missing=lambda: needs)])
    assert json.loads(palestra("doctor", "--json"))["needs"] == {"ScienceWorld": "get it"}


def test_show_tells_the_turn_limit_and_the_floor() -> None:
    shown = json.loads(palestra("show", "palestra.envs.games.guess_the_number:GuessTheNumber", "--json"))
    assert shown["max_turns"] == 7
    assert shown["floor"] == pytest.approx(0.745, abs=0.001)
    assert re.search(r"max_turns: +4\n.*floor: +", palestra("show", "game:GuessTheNumber-v0-easy"), re.DOTALL)


def test_doctor_starts_a_box_and_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyseccomp")
    box = json.loads(palestra("doctor", "--json"))["box"]
    assert box["works"], box
    assert re.fullmatch(r"Python 3[.\d]+ ran in a bubblewrap sandbox within [.\d]+ s.*", box["seen"])
    monkeypatch.setenv("PATH", "/nowhere")
    box = json.loads(palestra("doctor", "--json"))["box"]
    assert not box["works"]
    assert "apt-get install bubblewrap" in box["seen"]


@pytest.mark.parametrize(
    "command", [*([name] for name, _, _ in _COMMANDS), ["model", "tiny"], ["index", "build"]], ids=" ".join
)
def test_help_names_values_and_not_python_types(command: list[str]) -> None:
    # typer shows the types of its own --help and of arguments
    shown = palestra(*command, "--help")
    assert not re.search(r"\[more_envs\]|\{\w*[a-z]\w*\}", shown)
    options = [line for line in shown.splitlines() if re.match("│ *--(?!help)", line)]
    assert options
    assert not [line for line in options if re.search("<(int|float|str|bool|path)|INTEGER|FLOAT|more_envs", line)]


def test_the_overview_shows_the_first_lines_of_all_help_texts() -> None:
    overview, everything = (runner.invoke(one, ["--help"], prog_name="palestra").output for one in (app_for(["--help"]), app))
    assert "List the environments" in overview
    assert overview == everything


def test_version() -> None:
    from palestra import __version__

    assert palestra("--version").strip() == f"palestra {__version__}"


def test_play_lends_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyseccomp")
    typed = iter(["<python>6 * 7</python>", "?"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    done = CliRunner().invoke(app, ["play", "game:GuessTheNumber-v0-easy", "--seed", "0", "--tool", "python"])
    assert "\n42\n" in done.output
    assert "<search>" not in done.output
    refused = CliRunner().invoke(app, ["play", "game:GuessTheNumber-v0-easy", "--tool", "hammer"])
    assert 'tool = "hammer" is unknown' in str(refused.exception)


CAFE = """
import palestra

class Cafe(palestra.Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return "Order for me. Ask what you like; place the order as \\\\boxed{drink}.", {}

    def step(self, action):
        if palestra.grading.last_boxed(action) is None:
            return palestra.Step(f"You said: {action!r}. Tea.", 0.0, False, False, {})
        return palestra.Step("Thanks.", 1.0, True, False, {"success": True})
"""


@pytest.mark.slow
def test_a_conversation_can_be_played(tmp_path: Path) -> None:
    (tmp_path / "cafe.py").write_text(CAFE)
    done = subprocess.run(
        [sys.executable, "-m", "palestra.cli", "play", "cafe:Cafe"],
        check=False, cwd=tmp_path, input="/which drink?\ntea\n", capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "You said: 'which drink?'. Tea." in done.stdout
    assert "sent \\boxed{tea}" in done.stdout
    assert "solved, 2 turns" in done.stdout


def test_a_line_becomes_a_command_of_the_shell() -> None:
    pytest.importorskip("pyseccomp")
    shown = palestra("play", "terminal:text-v0-easy", "--seed", "1", typed="/bin/echo hello '<python>6</python>'\nsubmit\n")
    assert "What you type is run by bash." in shown
    assert "hello <python>6</python>\n" in shown
    assert "not solved, 2 turns" in shown


def test_the_screen_says_how_to_play() -> None:
    shown = palestra("play", "game:GuessTheNumber-v0-easy", "--seed", "0", typed="")
    assert "? shows what a perfect player would do" in shown
    assert "/TEXT sends TEXT as it is" in shown


def test_one_typo_does_not_end_a_game() -> None:
    shown = palestra("play", "game:GuessTheNumber-v0-easy", "--seed", "0", typed="1\nfvie\n/no box\n2\n3\n4\n5\n")
    assert shown.count("The move was taken back. Try again.") == 2
    assert "4 turns, total reward" in shown or "solved" in shown


@pytest.mark.slow
def test_play_says_at_once_that_no_server_answers() -> None:
    began = time.monotonic()
    done = command("play", "remote:http://127.0.0.1:1#game:Sudoku-v0")
    assert done.returncode != 0
    assert "no server answers at 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < 55  # once 60 s and more


def test_install_hints_keep_their_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    from palestra.registry import Need, register, unregister

    register("t:Lacking-v0", "nowhere:Env", needs=[Need(label="nowhere", module="nowhere", extra="math")])
    try:
        shown = " ".join(palestra("list", "t").split())
    finally:
        unregister("t:Lacking-v0")
    assert f"[needs nowhere: {how_to_install('math')}]" in shown


@pytest.mark.parametrize("wrong", [["-e", "none:Such-v0"], ["-e", "game:Nothing*"], ["-e", "math:Sums", "--tool", "hammer"]])
def test_a_usage_error_is_printed_without_a_progress_bar(tmp_path: Path, wrong: list[str]) -> None:
    refused = CliRunner().invoke(app, ["eval", "random", *wrong, "-o", str(tmp_path / "run")])
    assert isinstance(refused.exception, UsageError)
    assert "0/" not in refused.output
    assert not (tmp_path / "run").exists()


def test_serve_counts_environments_and_not_patterns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = pytest.importorskip("palestra.serve.server")
    monkeypatch.setattr(server, "serve", lambda *_, ready, **__: ready("http://127.0.0.1:8443"))
    count = len(json.loads(palestra("list", "game:Sudoku-*", "--json"))) + 1
    shown = palestra("serve", "game:Sudoku-*", "math:Sums", "--token-file", str(tmp_path / "token"))
    assert f"serving {count} environments at http://127.0.0.1:8443" in shown
    ready = json.loads(palestra("serve", "math:Sums", "--token-file", str(tmp_path / "token"), "--json"))
    assert ready == {"url": "http://127.0.0.1:8443", "environments": 1, "token_file": str(tmp_path / "token")}


def test_the_results_of_a_study_as_json() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "studies" / "sums"
    shown = json.loads(palestra("study", "show", str(folder), "--json"))
    assert set(shown["runs"]) == set(read_packed(folder))
