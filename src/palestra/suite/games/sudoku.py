"""Sudoku, 4×4 and 9×9, with boards whose solution is unique by construction.

A full grid is drawn cell by cell, always the cell with the fewest possible digits. Then cells are visited in random order, and
one is emptied only if the remaining digits force it: no other digit fits the cell, or the digit fits nowhere else in its
row, column or box. Putting such digits back one after another solves the board. So there is exactly one solution, no search
is needed to find it, and every board can be solved without guessing.

In GEM ``clues`` is the largest number of emptied cells; here it is the smallest number of given digits, so GEM's 50 is our 31
and its 10 our 6.
"""

from functools import cache
from math import isqrt
from typing import NamedTuple

from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_numbers

__all__ = ["Fill", "Sudoku", "units"]

_RANDOM_LEVELS: tuple[tuple[int, int, int], ...] = ((4, 6, 15), (9, 31, 50))
"""Side, clues, turns."""


class Fill(NamedTuple):
    """Write ``digit`` into a cell; rows and columns count from 1."""

    row: int
    column: int
    digit: int


class Sudoku(Game[Fill]):
    """Fill the empty cells, one per turn.

    Each right digit pays 1/(empty cells at the start), so a solved board pays 1 in total; a wrong digit uses up its turn. If a
    parameter is ``None``, each task draws its own level.
    """

    def __init__(self, scale: int | None = 9, clues: int | None = 31, max_turns: int | None = 50) -> None:
        if scale is None or clues is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(scale in (4, 9), f"scale must be 4 or 9, got {scale}")
            require(0 <= clues < scale**2 and max_turns >= 1, f"0 <= clues < {scale**2} and max_turns >= 1 must hold")
            self._levels = ((scale, clues, max_turns),)

    @property
    def floor(self) -> float:
        # A constant answer (cell and digit) is right in one of scale**3 tasks, weighted by what a cell pays.
        return sum(level[0] ** -3 for level in self._levels) / len(self._levels)

    def begin(self) -> None:
        self.scale, clues, self.max_turns = self.draw(self._levels)
        self.solution = _full_grid(self.scale, self.rng.random(self.scale**2 + self.scale**3).tolist())
        self.board = _dug(self.scale, self.solution, self.rng.permutation(self.scale**2).tolist(), clues)
        self.empty_at_start = self.board.count(0)

    def rules(self) -> str:
        side, box = self.scale, isqrt(self.scale)
        return (
            f"You are playing Sudoku on a {side}x{side} board.\n"
            f"Every row, every column and every {box}x{box} box holds each digit from 1 to {side} exactly once. Fill the empty "
            f"cells, shown as '.', within {self.max_turns} turns, one cell a turn. A wrong digit is refused.\n"
            f"Think as long as you like, then give row, column and digit inside \\boxed{{}}, for example {boxed(1, 1, 1)}. "
            f"Rows count from the top and columns from the left, both from 1."
        )

    def view(self) -> str:
        return _frame(self.scale) % tuple([digit or "." for digit in self.board])

    def read(self, answer: str) -> Fill | None:
        numbers = whole_numbers(answer)
        return Fill(*numbers) if numbers is not None and len(numbers) == 3 else None

    def play(self, move: Fill) -> MoveOutcome:
        said = f"At turn {self.turn}, you wrote {move.digit} into row {move.row}, column {move.column}, "
        if min(move) < 1 or max(move) > self.scale:
            return MoveOutcome(f"{said}but rows, columns and digits go from 1 to {self.scale}.")
        cell = (move.row - 1) * self.scale + move.column - 1
        if self.board[cell]:
            return MoveOutcome(f"{said}which is filled already.")
        if self.solution[cell] != move.digit:
            return MoveOutcome(f"{said}which is wrong.")
        self.board[cell] = move.digit
        reward = 1 / self.empty_at_start
        if 0 not in self.board:
            return MoveOutcome(f"{said}and the board is complete. Well done!", reward, solved=True)
        return MoveOutcome(f"{said}which is right.", reward)

    def oracle(self) -> str:
        cell = self.board.index(0)
        return boxed(cell // self.scale + 1, cell % self.scale + 1, self.solution[cell])

    def sample_random_action(self) -> str:
        cell = self.draw_action([cell for cell, digit in enumerate(self.board) if not digit])
        return boxed(cell // self.scale + 1, cell % self.scale + 1, self.draw_action(range(1, self.scale + 1)))


@cache
def _frame(side: int) -> str:
    """Return an empty board with a %s for every cell."""
    box = isqrt(side)
    row = " | ".join([" ".join(["%s"] * box)] * box)
    rule = "-+-".join(["-" * (2 * box - 1)] * box)
    return "The board:\n" + f"\n{rule}\n".join(["\n".join([row] * box)] * box)


@cache
def units(side: int) -> tuple[tuple[int, ...], ...]:
    """Return the cells (row by row, from 0) of every row, column and box."""
    box = isqrt(side)
    cells = [divmod(cell, side) for cell in range(side * side)]
    groups: list[tuple[int, ...]] = []
    for group in range(side):
        corner = (group // box * box, group % box * box)
        groups.append(tuple(cell for cell, (row, _) in enumerate(cells) if row == group))
        groups.append(tuple(cell for cell, (_, column) in enumerate(cells) if column == group))
        groups.append(tuple(cell for cell, at in enumerate(cells) if (at[0] // box * box, at[1] // box * box) == corner))
    return tuple(groups)


@cache
def _units_of(side: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return, for every cell, the other cells of its row, of its column and of its box."""
    return tuple(
        tuple(tuple(other for other in unit if other != cell) for unit in units(side) if cell in unit)
        for cell in range(side * side)
    )


@cache
def _peers(side: int) -> tuple[tuple[int, ...], ...]:
    """Return, for every cell, the others that share a row, column or box with it."""
    return tuple(tuple(sorted({other for unit in groups for other in unit})) for groups in _units_of(side))


def _full_grid(side: int, noise: list[float]) -> list[int]:
    """Return a complete grid. ``noise`` holds a number per cell (to break ties) and per digit of each cell."""
    cells = side * side
    peers = _peers(side)
    grid = [0] * cells
    left = [(1 << side) - 1] * cells  # one bit per digit that still fits

    def fill(open_cells: list[int]) -> bool:
        if not open_cells:
            return True
        cell = min(open_cells, key=lambda at: left[at].bit_count())
        rest = [other for other in open_cells if other != cell]
        digits = [digit for digit in range(side) if left[cell] >> digit & 1]
        for digit in sorted(digits, key=lambda digit: noise[cells + cell * side + digit]):
            bit = 1 << digit
            touched = [other for other in peers[cell] if not grid[other] and left[other] & bit]
            for other in touched:
                left[other] ^= bit
            grid[cell] = digit + 1
            if all(left[other] for other in touched if other != cell) and fill(rest):
                return True
            grid[cell] = 0
            for other in touched:
                left[other] |= bit
        return False

    assert fill(sorted(range(cells), key=noise.__getitem__)), "every Sudoku search must end in a full grid"
    return grid


def _dug(side: int, solution: list[int], order: list[int], clues: int) -> list[int]:
    """Return ``solution`` with cells emptied in ``order`` as long as the remaining digits force each of them."""
    board = list(solution)
    given = len(board)
    for cell in order:
        if given == clues:
            break
        board[cell] = 0
        if _forced(side, board, cell, solution[cell]):
            given -= 1
        else:
            board[cell] = solution[cell]
    return board


def _forced(side: int, board: list[int], cell: int, digit: int) -> bool:
    """Whether ``digit`` is the only one that fits the empty ``cell``, or fits nowhere else in one of its units."""
    peers = _peers(side)
    if len({board[other] for other in peers[cell]} - {0, digit}) == side - 1:
        return True
    return any(
        all(board[other] or any(board[peer] == digit for peer in peers[other]) for other in unit)
        for unit in _units_of(side)[cell]
    )
