from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core import Step
from palestra.suite.games.game_2048 import Game2048, slid

MOVES = ("up", "down", "left", "right")


def slow_slid(board: tuple[int, ...], move: str) -> tuple[int, ...]:
    """Turn the board so that the move is 'left', let tiles fall one cell at a time, merge once each, and turn it back."""
    grid = [list(board[start : start + 4]) for start in range(0, 16, 4)]
    turns = {"left": 0, "up": 1, "right": 2, "down": 3}[move]
    for _ in range(turns):  # a quarter turn against the clock brings 'up' to 'left'
        grid = [[grid[row][3 - column] for row in range(4)] for column in range(4)]
    for line in grid:
        merged = [False] * 4
        for start in range(1, 4):
            place = start
            while place > 0 and line[place]:
                if not line[place - 1]:
                    line[place - 1], line[place] = line[place], 0
                elif line[place - 1] == line[place] and not merged[place - 1]:
                    line[place - 1], line[place], merged[place - 1] = 2 * line[place], 0, True
                    break
                else:
                    break
                place -= 1
    for _ in range((4 - turns) % 4):
        grid = [[grid[row][3 - column] for row in range(4)] for column in range(4)]
    return tuple(tile for line in grid for tile in line)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(MOVES), min_size=1, max_size=40), st.sampled_from([8, 16, 64]))
def test_moves_follow_the_rules(seed: int, moves: list[str], target: int) -> None:
    game = Game2048(target, 30)
    game.reset(seed=seed)
    assert sorted(game.board)[:14] == [0] * 14
    first = best = max(game.board)
    total = 0.0
    for turn, move in enumerate(moves, start=1):
        before, after = game.board, slow_slid(game.board, move)
        step = game.step(f"\\boxed{{{move}}}")
        if after == before:
            assert (game.board, step.reward) == (before, 0.0)
        else:
            changed = [cell for cell in range(16) if game.board[cell] != after[cell]]
            assert len(changed) == 1
            assert after[changed[0]] == 0
            assert game.board[changed[0]] in (2, 4)
            best = max(best, *after)
        total += step.reward
        assert total == pytest.approx(log2(min(best, target) / first) / log2(target / first))
        stuck = all(slow_slid(game.board, other) == game.board for other in MOVES)
        assert (step.terminated, step.truncated) == (best >= target or stuck, best < target and not stuck and turn == 30)
        if step.terminated or step.truncated:
            assert step.info["success"] == (best >= target)
            return


def test_new_tiles_are_twos_nine_times_in_ten() -> None:
    game, fours = Game2048(2048, 100), 0
    for seed in range(500):
        game.reset(seed=seed)
        fours += game.board.count(4)
    assert 60 <= fours <= 145  # 100 of 1,000 expected, standard deviation 9.5


@pytest.mark.parametrize(
    ("row", "left"),
    [((2, 2, 2, 2), (4, 4, 0, 0)), ((4, 2, 2, 0), (4, 4, 0, 0)), ((2, 0, 2, 2), (4, 2, 0, 0)), ((0, 0, 8, 2), (8, 2, 0, 0))],
)
def test_tiles_merge_once(row: tuple[int, ...], left: tuple[int, ...]) -> None:
    assert slid((0,) * 4 + row + (0,) * 8, "left") == (0,) * 4 + left + (0,) * 8
    assert slid((0,) * 4 + row[::-1] + (0,) * 8, "right") == (0,) * 4 + left[::-1] + (0,) * 8


def test_a_full_board_without_a_move_ends_the_game() -> None:
    game = Game2048(64, 30)
    game.reset(seed=0)
    steps = list[Step]()
    while not steps or not steps[-1].terminated:  # a new tile may fit to its neighbor
        game.board = (2, 4, 2, 4, 4, 2, 4, 2, 2, 4, 2, 4, 4, 2, 8, 8)
        steps.append(game.step("\\boxed{left}"))
    assert steps[-1].info == {"success": False}
