from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.connect_four import ConnectFour

Board = dict[tuple[int, int], str]


def board_of(game: ConnectFour) -> Board:
    """Discs by (column, height), both from 0, as the player sees them."""
    lines = game.view().splitlines()[1:-1]
    return {
        (column, height): mark
        for height, line in enumerate(reversed(lines))
        for column, mark in enumerate(line.split())
        if mark != "."
    }


def won(board: Board, who: str) -> bool:
    for (column, height), mark in board.items():
        for right, up in ((1, 0), (0, 1), (1, 1), (1, -1)):
            if mark == who and all(board.get((column + n * right, height + n * up)) == who for n in range(4)):
                return True
    return False


def dropped(board: Board, column: int, who: str) -> Board:
    return board | {(column, sum(at == column for at, _ in board)): who}


def open_columns(board: Board) -> list[int]:
    return [column for column in range(7) if sum(at == column for at, _ in board) < 6]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 8), min_size=1, max_size=40), st.sampled_from([0.0, 0.5, 1.0]))
def test_moves_follow_the_rules(seed: int, moves: list[int], skill: float) -> None:
    game = ConnectFour(skill, 2)
    game.reset(seed=seed)
    board = board_of(game)
    assert list(board.values()) == ([] if game.begins else ["O"])
    for move in moves:
        step = game.step(f"\\boxed{{{move}}}")
        now = board_of(game)
        if move - 1 not in open_columns(board):
            assert (now, step.reward, step.terminated) == (board, 0.0, False)
            continue
        mine = dropped(board, move - 1, "X")
        if won(mine, "X") or not open_columns(mine):
            assert now == mine
        else:
            assert now in [dropped(mine, column, "O") for column in open_columns(mine)]
        if skill == 1.0 and not won(mine, "X"):
            winning = any(won(dropped(mine, column, "O"), "O") for column in open_columns(mine))
            assert not winning or won(now, "O"), "a win was missed"
        full = not open_columns(now)
        expected = 1.0 if won(now, "X") else 0.5 if full and not won(now, "O") else 0.0
        assert (step.reward, step.terminated) == (expected, won(now, "X") or won(now, "O") or full)
        board = now
        if step.terminated:
            assert step.info["success"] == won(now, "X")
            return
