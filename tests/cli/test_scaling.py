"""The command for test-time compute, and strategies on the command line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.evaluation import read_report

OWN = """
class Polite:
    def __init__(self, policy, word):
        self.policy, self.name = policy, f"polite {word}"
        self.privileged = True

    async def act(self, conversation):
        return await self.policy.act(conversation)

def turns(trajectory):
    return -len(trajectory.turns)
"""


def palestra(*arguments: str, fails: str = "") -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert (done.exit_code != 0) == bool(fails), done.output
    assert fails in f"{done.output}{done.exception}"
    return done.stdout


def test_one_command_draws_the_figure_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine_judge.py").write_text(OWN)
    command = ["scaling", "random", "--envs", "game:GuessTheNumber-v0-easy", "-n", "6", "--turns", "1", "--turns", "4"]
    shown = palestra(*command, "--samples", "3", "--judge", "mine_judge:turns")
    assert "| samples | pass@k | majority | best of k |" in shown
    folder = Path("runs/scaling,random,game-GuessTheNumber-v0-easy")
    assert (folder / "scaling.svg").read_text().startswith("<svg")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["turns-0001", "turns-0004"]
    assert palestra(*command, "--samples", "3", "--judge", "mine_judge:turns") == shown
    palestra("scaling", "random", "--envs", "game:Sudoku-v0-easy", "--judge", "nobody", fails="is unknown")


def test_a_strategy_is_part_of_the_name_and_may_be_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine_strategy.py").write_text(OWN)
    command = ["eval", "random", "--envs", "game:GuessTheNumber-v0-easy", "-n", "4"]
    palestra(*command, "-o", "tree", "--strategy", "tree?forks=10&width=2")
    report = read_report("tree")
    assert report.policy == "random + tree?width=2&forks=10"
    assert report.privileged
    palestra(*command, "-o", "own", "--strategy", "mine_strategy:Polite?word=please")
    assert read_report("own").policy == "polite please"
    palestra(*command, "--strategy", "react?keeps=1", fails="Did you mean keep?")
    palestra(*command, "--history", "last", fails="--history is for models")
