"""Ceilings are correct: computed in another way, or measured again on other tasks."""

from math import sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from tests.envs.games.test_every_game import PLAYED, built

from palestra.envs.games.frozen_lake import FrozenLake
from palestra.envs.games.game import Game
from palestra.envs.games.hangman import Hangman

NAMES = ("Blackjack", "ConnectFour", "FrozenLake", "Game2048", "Hangman", "TicTacToe")
"""Games that cannot always be won."""
QUICK = [id for id in PLAYED if "Blackjack" in id or "TicTacToe" in id]


def total(game: Game[Any]) -> float:
    score = 0.0
    while True:
        step = game.step(game.oracle())
        score += step.reward
        if step.terminated or step.truncated:
            return score


def measured(id: str, tasks: int) -> tuple[float, float]:
    """The oracle's mean score on tasks that no ceiling was measured on, and its standard error."""
    game = built(id)
    scores = []
    for seed in range(50_000, 50_000 + tasks):
        game.reset(seed=seed)
        scores.append(total(game))
    return fmean(scores), stdev(scores) / sqrt(tasks)


def test_only_games_that_cannot_always_be_won_have_a_ceiling() -> None:
    families = {id.partition("-")[0] for id in PLAYED if built(id).ceiling is not None}
    assert families == {f"game:{name}" for name in NAMES}
    assert FrozenLake(8, 48).ceiling is None
    assert Hangman(5, 15).ceiling is None


@pytest.mark.parametrize("id", QUICK)
def test_exact_ceilings_are_what_the_oracle_scores(id: str) -> None:
    mean, error = measured(id, 1000)
    assert built(id).ceiling == pytest.approx(mean, abs=4 * error + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id in PLAYED if id not in QUICK and any(name in id for name in NAMES)])
def test_measured_ceilings_can_be_measured_again(id: str) -> None:
    if (ceiling := built(id).ceiling) is not None:  # a level may have none
        mean, error = measured(id, 60)
        assert ceiling == pytest.approx(mean, abs=4 * error + 0.02)


def test_the_best_chance_on_other_lakes_is_measured() -> None:
    assert FrozenLake(4, 24, slip=0.5, holes=0.0).ceiling == pytest.approx(1.0, abs=0.05)
    assert FrozenLake(4, 24, slip=0.1).ceiling < 1.0  # type: ignore[operator]
