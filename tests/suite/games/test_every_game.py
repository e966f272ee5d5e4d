"""What every game promises beyond the contract of an environment: moves, their limits and a total of one.

``tests/suite/test_every_environment.py`` checks the contract.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palestra.core import Step
from palestra.errors import UsageError
from palestra.registry import list_envs, spec
from palestra.suite.games import (
    connect_four,
    countdown,
    crosswords,
    fifteen_puzzle,
    frozen_lake,
    game_2048,
    guess_the_number,
    lights_out,
    mastermind,
    maze,
    minesweeper,
    sokoban,
    sudoku,
    tic_tac_toe,
    tower_of_hanoi,
    word_search,
)
from palestra.suite.games.game import FORMAT_ERROR, Game
from palestra.trajectory import StopReason

IDS = [known.id for known in list_envs("game:*")]
PLAYED = [id for id in IDS if not spec(id).level or id.endswith(f"-{spec(id).level}")]

SMALL_WIKI = Path(__file__).parent / "small_wiki.jsonl"

NO_MOVES = (
    "",
    " ",
    "a" * 1_000_000,
    "\\boxed{}",
    "\\boxed{\u202e\ud800}",
    "\\boxed{²}",
    "\\boxed{__class__}",
    "\\boxed{" + "9" * 5000 + "}",
)


def built(id: str) -> Game[Any]:
    known = spec(id)
    corpus = {"corpus": str(SMALL_WIKI)} if known.family == "WikiGame" else {}
    game = known.factory(corpus)(**known.kwargs, **corpus)
    assert isinstance(game, Game)
    return game


def played(game: Game[Any], seed: int, choose: Callable[[], str]) -> list[Step]:
    """The steps of an episode under ``choose``."""
    game.reset(seed=seed)
    steps = [game.step(choose())]
    while not (steps[-1].terminated or steps[-1].truncated):
        assert "success" not in steps[-1].info
        steps.append(game.step(choose()))
    return steps


def total(steps: list[Step]) -> float:
    return sum(step.reward for step in steps)


@pytest.mark.parametrize("id", PLAYED)
def test_a_perfect_game_is_worth_one(id: str) -> None:
    game = built(id)
    for seed in range(6):
        steps = played(game, seed, game.oracle)
        assert total(steps) == pytest.approx(1.0) or (game.ceiling is not None and total(steps) < 1.0)
        assert steps[-1].info["success"] == (total(steps) == pytest.approx(1.0))


@pytest.mark.parametrize("id", PLAYED)
def test_random_actions_are_well_formed_and_end_within_the_registered_limit(id: str) -> None:
    game = built(id)
    for seed in range(4):
        steps = played(game, seed, game.sample_random_action)
        assert not any(step.info.get("format_error") for step in steps)
        assert total(steps) <= 1.0 + 1e-9
        assert (steps[-1].info.get("stop_reason") == StopReason.TURN_LIMIT) == steps[-1].truncated
        assert len(steps) <= game.max_turns
        assert len(steps) == game.max_turns or not steps[-1].truncated
    assert spec(id).max_turns == game.max_turns or (spec(id).max_turns is None and spec(id).level == "random")


@pytest.mark.parametrize("id", PLAYED)
def test_a_reply_without_a_move_ends_the_game_at_a_cost_and_the_last_move_counts(id: str) -> None:
    game, plain = built(id), built(id)
    for action in NO_MOVES:
        game.reset(seed=1)
        step = game.step(action)
        assert len(str(step.observation).encode()) < 5000
        if "\\boxed{" not in action:
            assert step[1:4] == (FORMAT_ERROR, True, False)
    game.reset(seed=2)
    plain.reset(seed=2)
    move = plain.oracle()
    assert game.step(f"First I thought \\boxed{{nonsense}}, but now {move} it is.") == plain.step(move)


@pytest.mark.parametrize(
    ("game", "answers"),
    [
        (guess_the_number.GuessTheNumber(1, 10, 4), ("²", "٣", "+3", "3.0", "1_0", "9" * 19, "three", "3 4")),
        (word_search.WordSearch(), ("1 1 1", "1 1 1 1 1", "[1 1 1 5]", "a b c d", "1 1 1 -5")),
        (
            minesweeper.Minesweeper(5, 5, 5, 25),
            ("reveal", "reveal 1", "open 1 1", "reveal 1 1 1", "reveal -1 1", "reveal ٣ 1", "1 1"),
        ),
        (sudoku.Sudoku(4, 6, 15), ("1 1", "1 1 1 1", "1 1 x", "1;1;1", "R1 C1 1")),
        (crosswords.Crosswords(), ("0 0", "0 0 AB", "A 0 0", "0 0 é", "0 0 1", "0 0 A B", "٣ 0 A")),
        (tower_of_hanoi.TowerOfHanoi(3, 10), ("A", "A B C", "A D", "1 3", "A;C", "A to", "tower A")),
    ],
)
def test_what_is_not_a_move_is_a_format_error(game: Game[Any], answers: tuple[str, ...]) -> None:
    for answer in answers:
        game.reset(seed=0)
        assert game.step(f"\\boxed{{{answer}}}").info["format_error"], answer


@pytest.mark.parametrize(
    ("make", "impossible"),
    [
        (connect_four.ConnectFour, [(2.0, 2), (1.0, 0), (1.0, 7)]),
        (countdown.Countdown, [(2, 5), (7, 5), (3, 0)]),
        (crosswords.Crosswords, [(True, 0, 30), (True, 3, 10), (True, 13, 100)]),
        (fifteen_puzzle.FifteenPuzzle, [(1, 10), (4, 0)]),
        (frozen_lake.FrozenLake, [(1, 10), (4, 20), (4, 24, 1.0), (4, 24, 0.0, 1.5)]),
        (game_2048.Game2048, [(4, 10), (100, 10), (64, 0)]),
        (guess_the_number.GuessTheNumber, [(5, 5, 3), (9, 1, 3), (-1, 5, 3), (1, 5, 0)]),
        (lights_out.LightsOut, [(1, 10), (9, 100), (5, 24)]),
        (mastermind.Mastermind, [(0, 4, 5), (5, 4, 5), (2, 4, 0), (1, 0, 5)]),
        (maze.Maze, [(1, 10), (4, 0)]),
        (minesweeper.Minesweeper, [(3, 3, 1, 5), (5, 5, 17, 5), (5, 5, 0, 5), (5, 5, 5, 0)]),
        (sokoban.Sokoban, [((4, 8), 1, 20), ((6, 6), 3, 20), ((6, 6), 0, 20), ((6, 6), 2, 9)]),
        (sudoku.Sudoku, [(5, 6, 15), (9, 81, 15), (4, -1, 15), (4, 6, 0)]),
        (tic_tac_toe.TicTacToe, [(1.5,)]),
        (tower_of_hanoi.TowerOfHanoi, [(3, 10, "A", "A"), (3, 10, "A", "D"), (3, 10, "", "C"), (0, 10)]),
        (word_search.WordSearch, [(0, 20, True), (21, 40, True), (5, 4, True)]),
    ],
)
def test_impossible_parameters_are_refused(make: Callable[..., object], impossible: list[tuple[Any, ...]]) -> None:
    for arguments in impossible:
        with pytest.raises(UsageError):
            make(*arguments)
