"""Ceilings and floors are correct: computed in another way, or measured again on other tasks."""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.suite.games.test_every_game import PLAYED, built

from palestra.suite.games.crosswords import Crosswords
from palestra.suite.games.frozen_lake import FrozenLake
from palestra.suite.games.game import Game
from palestra.suite.games.guess_the_number import GuessTheNumber
from palestra.suite.games.hangman import Hangman
from palestra.suite.games.mastermind import Mastermind
from palestra.suite.games.minesweeper import Minesweeper
from palestra.suite.games.sudoku import Sudoku
from palestra.suite.games.tower_of_hanoi import TowerOfHanoi

NAMES = ("Blackjack", "ConnectFour", "FrozenLake", "Game2048", "Hangman", "TicTacToe")
"""Games that cannot always be won."""
QUICK = [id for id in PLAYED if "Blackjack" in id or "TicTacToe" in id]


def measured(game: Game[Any], choose: Callable[[], str], seeds: range) -> tuple[float, float]:
    """The mean score of a player on tasks that nothing was measured on, and its standard error."""
    scores = []
    for seed in seeds:
        game.reset(seed=seed)
        scores.append(0.0)
        ended = False
        while not ended:
            step = game.step(choose())
            scores[-1] += step.reward
            ended = step.terminated or step.truncated
    return fmean(scores), stdev(scores) / sqrt(len(scores))


@pytest.mark.parametrize("id", QUICK)
def test_exact_ceilings_are_what_the_oracle_scores(id: str) -> None:
    game = built(id)
    mean, error = measured(game, game.oracle, range(50_000, 51_000))
    assert game.ceiling == pytest.approx(mean, abs=4 * error + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id in PLAYED if id not in QUICK and any(name in id for name in NAMES)])
def test_measured_ceilings_can_be_measured_again(id: str) -> None:
    game = built(id)
    if game.ceiling is not None:  # a level may have none
        mean, error = measured(game, game.oracle, range(50_000, 50_060))
        assert game.ceiling == pytest.approx(mean, abs=4 * error + 0.02)


def test_only_games_that_cannot_always_be_won_have_a_ceiling() -> None:
    families = {id.partition("-")[0] for id in PLAYED if built(id).ceiling is not None}
    assert families == {f"game:{name}" for name in NAMES}
    assert FrozenLake(8, 48).ceiling is None
    assert FrozenLake(4, 24, slip=0.1).ceiling < 1.0  # type: ignore[operator]
    assert FrozenLake(4, 24, slip=0.5, holes=0.0).ceiling == pytest.approx(1.0, abs=0.05)
    assert Hangman(5, 15).ceiling is None


@pytest.mark.parametrize(
    ("game", "answers", "margin"),
    [
        (GuessTheNumber(1, 10, 4), [str(number) for number in range(1, 11)], 0.04),
        (Mastermind(2, 6, 10), ["1 2", "6 3"], 0.05),
        (TowerOfHanoi(3, 6), [f"{source} {target}" for source in "ABC" for target in "ABC"], 1e-9),
        (TowerOfHanoi(5, 6), [f"{source} {target}" for source in "ABC" for target in "ABC"], 1e-9),
        (Minesweeper(5, 5, 5, 10), ["reveal 2 2"], 0.08),
        (Sudoku(4, 6, 15), ["2 3 1"], 0.01),
        (Crosswords(False, 3, 30), ["0 1 E"], 0.03),
    ],
)
def test_the_floor_is_what_the_best_constant_answer_scores(game: Game[Any], answers: Sequence[str], margin: float) -> None:
    means = [measured(game, f"\\boxed{{{answer}}}".__str__, range(500, 900))[0] for answer in answers]
    assert game.floor == pytest.approx(max(means), abs=margin)
