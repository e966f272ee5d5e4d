import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.games.fifteen_puzzle import FifteenPuzzle

Grid = tuple[tuple[int, ...], ...]
WAY = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}
"""Where the tile that moves stands, seen from the gap."""


def slid(grid: Grid, move: str) -> Grid:
    """The grid after ``move``; the same one if it is impossible."""
    side = len(grid)
    [(row, column)] = [(r, c) for r in range(side) for c in range(side) if grid[r][c] == 0]
    r, c = row + WAY[move][0], column + WAY[move][1]
    if not (0 <= r < side and 0 <= c < side):
        return grid
    cells = [list(line) for line in grid]
    cells[row][column], cells[r][c] = cells[r][c], 0
    return tuple(map(tuple, cells))


def grid_of(game: FifteenPuzzle) -> Grid:
    return tuple(tuple(game.board[start : start + game.side]) for start in range(0, game.side**2, game.side))


@given(st.integers(0, 2**32), st.integers(2, 4), st.lists(st.sampled_from(list(WAY)), min_size=1, max_size=30))
def test_moves_follow_the_rules(seed: int, side: int, moves: list[str]) -> None:
    game = FifteenPuzzle(side, 25)
    game.reset(seed=seed)
    goal = [*range(1, side**2), 0]
    grid = grid_of(game)
    assert game.board != goal
    for turn, move in enumerate(moves, start=1):
        step = game.step(f"\\boxed{{{move}}}")
        grid = slid(grid, move)
        assert grid_of(game) == grid
        flat = [tile for line in grid for tile in line]
        solved = flat == goal
        assert (step.terminated, step.truncated) == (solved, not solved and turn == 25)
        right = sum(mine == theirs for mine, theirs in zip(flat, goal, strict=True)) / side**2
        assert step.reward == pytest.approx(1.0 if solved else right if turn == 25 else 0.0)
        if step.terminated or step.truncated:
            return


@given(st.integers(0, 2**32), st.lists(st.sampled_from(list(WAY)), max_size=12))
def test_the_oracle_finds_home_from_wherever_the_player_went(seed: int, moves: list[str]) -> None:
    game = FifteenPuzzle(3, 200)
    game.reset(seed=seed)
    step = None
    for move in moves:
        step = game.step(f"\\boxed{{{move}}}")
        if step.terminated:
            return
    while step is None or not step.terminated:
        step = game.step(game.oracle())
        assert not step.truncated
    assert step.info["success"]
