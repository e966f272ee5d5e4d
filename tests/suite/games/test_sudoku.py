from math import isqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.sudoku import Sudoku


def fits(board: list[int], side: int, cell: int, digit: int) -> bool:
    box = isqrt(side)
    row, column = divmod(cell, side)
    for other, there in enumerate(board):
        at_row, at_column = divmod(other, side)
        near = row == at_row or column == at_column or (row // box, column // box) == (at_row // box, at_column // box)
        if near and there == digit:
            return False
    return True


def solutions(board: list[int], side: int, limit: int = 2) -> list[list[int]]:
    """Up to ``limit`` solutions by plain search, the cell with the fewest choices first."""
    options = {
        cell: [digit for digit in range(1, side + 1) if fits(board, side, cell, digit)]
        for cell, digit in enumerate(board)
        if not digit
    }
    if not options:
        return [list(board)]
    cell = min(options, key=lambda at: len(options[at]))
    found: list[list[int]] = []
    for digit in options[cell]:
        board[cell] = digit
        found += solutions(board, side, limit - len(found))
        board[cell] = 0
        if len(found) >= limit:
            break
    return found


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**53), st.sampled_from([(4, 6), (9, 31), (9, 60), (4, 0)]))
@pytest.mark.slow
def test_every_board_has_exactly_one_solution(seed: int, level: tuple[int, int]) -> None:
    side, clues = level
    game = Sudoku(side, clues, 50)
    game.reset(seed=seed)
    assert solutions(list(game.board), side) == [game.solution]
    assert side**2 - game.board.count(0) >= clues
    assert game.board.count(0) == game.empty_at_start > 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=40))
def test_moves_follow_the_rules(seed: int, moves: list[tuple[int, int, int]]) -> None:
    game = Sudoku(4, 6, 30)
    game.reset(seed=seed)
    board = list(game.board)
    [solution] = solutions(list(board), 4)
    empty = board.count(0)
    for turn, (row, column, digit) in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{row} {column} {digit}}}")
        inside = all(1 <= number <= 4 for number in (row, column, digit))
        cell = 4 * (row - 1) + column - 1
        right = inside and not board[cell] and solution[cell] == digit
        if right:
            board[cell] = digit
        assert game.board == board
        assert [mark for mark in game.view() if mark in ".1234"] == [str(given or ".") for given in board]
        assert step.reward == (pytest.approx(1 / empty) if right else 0.0)
        over = 0 not in board
        assert (step.terminated, step.truncated) == (over, not over and turn == 30)
        if over or turn == 30:
            return
