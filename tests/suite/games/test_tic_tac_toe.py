from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.tic_tac_toe import TicTacToe

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def board_of(game: TicTacToe) -> str:
    marks = " ".join(game.view().splitlines()[1:]).replace("|", " ").split()
    return "".join(mark if mark in "XO" else "." for mark in marks)


def winner(board: str) -> str | None:
    return next((board[a] for a, b, c in LINES if board[a] != "." and board[a] == board[b] == board[c]), None)


@cache
def value(board: str, mover: str) -> int:
    """1 if X wins with best play on both sides, -1 if O does."""
    if won := winner(board):
        return 1 if won == "X" else -1
    places = [place for place, mark in enumerate(board) if mark == "."]
    if not places:
        return 0
    after = [value(board[:place] + mover + board[place + 1 :], "O" if mover == "X" else "X") for place in places]
    return max(after) if mover == "X" else min(after)


@given(st.integers(0, 2**32), st.lists(st.integers(0, 10), min_size=1, max_size=9), st.sampled_from([0.0, 0.5, 1.0]))
def test_moves_follow_the_rules(seed: int, moves: list[int], skill: float) -> None:
    game = TicTacToe(skill)
    game.reset(seed=seed)
    board = board_of(game)
    assert board.count("X") == 0
    assert board.count("O") == (0 if game.begins else 1)
    for move in moves:
        step = game.step(f"\\boxed{{{move}}}")
        now = board_of(game)
        if not 1 <= move <= 9 or board[move - 1] != ".":
            assert (now, step.reward, step.terminated) == (board, 0.0, False)
            continue
        mine = board[: move - 1] + "X" + board[move:]
        replies = [place for place in range(9) if now[place] != mine[place]]
        over = winner(mine) == "X" or "." not in mine
        assert len(replies) == (0 if over else 1)
        assert all(now[place] == "O" for place in replies)
        if skill == 1.0 and replies:
            assert value(now, "X") == value(mine, "O"), "the reply was a mistake"
        won = winner(now)
        expected = {"X": 1.0, "O": 0.0}.get(won or "", 0.5 if "." not in now else 0.0)
        assert (step.reward, step.terminated) == (expected, won is not None or "." not in now)
        board = now
        if step.terminated:
            assert step.info["success"] == (won == "X")
            return
