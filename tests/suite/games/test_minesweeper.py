from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.suite.games.bitsets import bits
from palestra.suite.games.minefield import conclude, neighbors, opening
from palestra.suite.games.minesweeper import Minesweeper

Cell = tuple[int, int]


def around(cell: Cell, rows: int, columns: int) -> set[Cell]:
    row, column = cell
    near = {(row + dr, column + dc) for dr in (-1, 0, 1) for dc in (-1, 0, 1)} - {cell}
    return {(r, c) for r, c in near if 0 <= r < rows and 0 <= c < columns}


def flood(cell: Cell, mines: set[Cell], open_cells: set[Cell], flags: set[Cell], rows: int, columns: int) -> set[Cell]:
    """All that a reveal opens, by plain recursion."""
    if cell in open_cells:
        return open_cells
    open_cells = open_cells | {cell}
    if not around(cell, rows, columns) & mines:
        for other in sorted(around(cell, rows, columns) - flags):
            open_cells = flood(other, mines, open_cells, flags, rows, columns)
    return open_cells


def as_cells(field: int, columns: int) -> set[Cell]:
    return {(cell // columns, cell % columns) for cell in bits(field)}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.sampled_from(["reveal", "reveal", "flag"]), st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=30
    ),
    st.booleans(),
)
def test_moves_follow_the_rules(seed: int, moves: list[tuple[str, int, int]], guess_free: bool) -> None:
    rows, columns, count, limit = 5, 6, 4, 25
    game = Minesweeper(rows, columns, count, limit, guess_free)
    game.reset(seed=seed)
    open_cells, flags = set[Cell](), set[Cell]()
    for turn, (verb, *at) in enumerate(moves, start=1):
        cell = (at[0], at[1])
        step = game.step(f"\\boxed{{{verb} {cell[0]} {cell[1]}}}")
        mines = as_cells(game.mines, columns)
        inside = cell[0] < rows and cell[1] < columns
        before, hit = len(open_cells), False
        if inside and cell not in open_cells:
            if verb == "flag":
                flags ^= {cell}
            elif cell not in flags:
                hit = cell in mines
                assert not hit or open_cells, "the first reveal is safe"
                assert open_cells or not (around(cell, rows, columns) | {cell}) & mines
                open_cells = open_cells if hit else flood(cell, mines, open_cells, flags, rows, columns)
        assert as_cells(game.opened, columns) == open_cells
        assert as_cells(game.flags, columns) == flags
        marks = [line.split()[1:] for line in game.view().splitlines() if line[1:2].isdigit()]
        for r, c in product(range(rows), range(columns)):
            shown = str(len(around((r, c), rows, columns) & mines)) if (r, c) in open_cells else "F" if (r, c) in flags else "."
            assert hit or marks[r][c].strip("[]") == shown
        assert step.reward == pytest.approx((len(open_cells) - before) / (rows * columns - count))
        won = len(open_cells) == rows * columns - count
        assert (step.terminated, step.truncated) == (won or hit, not won and not hit and turn == limit)
        if step.terminated or step.truncated:
            assert step.info["success"] == won
            return


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_conclusions_hold_in_every_field_that_looks_the_same(data: st.DataObject) -> None:
    rows, columns, count = 4, 4, 3
    near = neighbors(rows, columns)
    cells = range(rows * columns)
    mines = sum(1 << cell for cell in data.draw(st.sets(st.sampled_from(cells), min_size=count, max_size=count)))
    opened = 0
    for cell in data.draw(st.sets(st.sampled_from(cells), min_size=1, max_size=6)):
        if not mines >> cell & 1:
            opened |= opening(near, mines, cell, 0xFFFF & ~opened)
    found = conclude(near, mines, opened, 0xFFFF & ~opened)
    numbers = {cell: (near[cell] & mines).bit_count() for cell in bits(opened)}
    alike = [
        field
        for field in (sum(1 << cell for cell in chosen) for chosen in combinations(cells, count))
        if not field & opened and all((near[cell] & field).bit_count() == number for cell, number in numbers.items())
    ]
    assert mines in alike
    assert all(not field & found.safe and field & found.mines == found.mines for field in alike)


@pytest.mark.parametrize(("rows", "mines", "turns"), [(5, 5, 25), (8, 12, 64)])
def test_no_guess_is_needed_wherever_the_player_starts(rows: int, mines: int, turns: int) -> None:
    for first in range(0, rows * rows, 3):
        game = Minesweeper(rows, rows, mines, turns)
        game.reset(seed=first)
        step = game.step(f"\\boxed{{reveal {first // rows} {first % rows}}}")
        while not (step.terminated or step.truncated):
            step = game.step(game.oracle())
        assert step.info["success"]
