from pathlib import Path

import pytest
from tests.cli.invoking import palestra

from palestra import evaluate
from palestra.evaluation.leaderboard import (
    Leaderboard,
    LeaderboardEntry,
    ScoreCell,
    entry_of,
    leaderboard_page,
    reference_entries,
)

GUESS, SUDOKU = "game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"
SCORES = {GUESS: {"random": {"mean": 0.5, "low": 0.4, "high": 0.6, "tasks": 200}, "oracle": None}, SUDOKU: {}}


def test_an_entry_is_what_the_report_says() -> None:
    entry = entry_of(evaluate([GUESS, SUDOKU], "oracle", n=5))
    assert entry.policy == "oracle"
    assert entry.cells[GUESS].mean == pytest.approx(1.0)
    assert (entry.cells[GUESS].tasks, entry.cells[GUESS].asked) == (5, 0)


def test_what_was_not_played_is_said() -> None:
    cell = ScoreCell(0.25, 0.1, 0.5, 9, 9, 10)
    page = leaderboard_page(
        [*reference_entries(SCORES), LeaderboardEntry("a|b", {SUDOKU: cell}, "how"), LeaderboardEntry("to come")]
    )
    assert f"| `{GUESS}` | 0.50 [0.40, 0.60] (200) | not run |" in page
    assert f"| `{SUDOKU}` | not run | 0.25 of 9 of 10 (all: 0.10 to 0.50) |" in page
    assert "Not run here: oracle, to come." in page
    assert "**a\\|b**: how" in page


def test_a_newer_entry_takes_the_place_of_the_older() -> None:
    first = Leaderboard((LeaderboardEntry("a"), LeaderboardEntry("b")))
    again = first.with_entries([LeaderboardEntry("a", note="new"), LeaderboardEntry("c")])
    assert [(entry.policy, entry.note) for entry in again.entries] == [("a", "new"), ("b", ""), ("c", "")]


def test_the_command_keeps_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    evaluate(GUESS, "random", n=5, out="runs/random")
    assert "2 policies" in palestra("leaderboard", "runs/random", "--name", "chance", "--expect", "to come")
    assert [entry.policy for entry in Leaderboard.read(Path("leaderboard.json")).entries] == ["chance", "to come"]
    before = Path("leaderboard.md").read_text()
    palestra("leaderboard")
    assert Path("leaderboard.md").read_text() == before
