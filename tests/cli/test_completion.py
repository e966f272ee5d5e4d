import json

import pytest

from palestra.cli import main


def complete(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("_PALESTRA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert main([]) == 0
    return capsys.readouterr().out.split()


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
    assert complete(words, monkeypatch, capsys) == expected


def test_json_results_are_one_document(tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path_factory.mktemp("json")
    run = str(folder / "run")
    easy = ["--envs", "game:GuessTheNumber-v0-easy", "-n", "4"]

    def result(*arguments: str) -> dict[str, object]:
        assert main([*arguments, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict)
        return found

    assert result("eval", "oracle", *easy, "-o", run)["folder"] == run
    rolled = result("rollout", "random", *easy, "-o", str(folder / "rolled"))
    assert (rolled["played"], rolled["sound"]) == (4, True)
    assert result("view", run, "--export", str(folder / "page.html")) == {"file": str(folder / "page.html")}
    assert result("export", run, "--to", "openai", "-o", str(folder / "chat.jsonl"))["episodes"] == 4
    assert result("regrade", run, "-o", str(folder / "again"))["changed"] == []
    assert result("plan", "--gpus", "8", "--episodes", "100")["simulated"] is True
