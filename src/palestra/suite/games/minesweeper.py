"""Minesweeper: reveal every cell without a mine. The first reveal is safe, and no guess is ever needed."""

import re
from typing import NamedTuple

from palestra.suite.games.bitsets import bits
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_number
from palestra.suite.games.grids import numbered_grid
from palestra.suite.games.minefield import conclude, least_risky, neighbors, opening, solvable

__all__ = ["Minesweeper", "Touch"]

_RANDOM_SIDES = (5, 6, 7, 8)

_MOST_FIELDS = 500
"""Most fields drawn to find one that needs no guess. At the registered levels one in two or three does."""

_TOUCH = re.compile(r"(reveal|flag)[\s,]+(\d+)[\s,]+(\d+)", re.IGNORECASE | re.ASCII)


class Touch(NamedTuple):
    """Reveal a cell, or put a flag there (or take it away); rows and columns count from 0."""

    verb: str
    row: int
    column: int


class Minesweeper(Game[Touch]):
    """Reveal all cells that hold no mine; a revealed cell shows how many of its eight neighbors do.

    The mines are laid at the first reveal, away from that cell and its neighbors. Each newly opened cell pays 1/(safe cells),
    so a cleared field is worth 1; a mine ends the game. With ``guess_free``, fields are drawn until one can be cleared by
    logic alone, that is by comparing two numbers at a time; if there are too many mines to find one, the last field is used.
    The oracle uses the same logic and wins every guess-free field. If ``rows`` and the other parameters are ``None``, each
    task draws its own level.
    """

    def __init__(
        self,
        rows: int | None = 8,
        cols: int | None = 8,
        num_mines: int | None = 12,
        max_turns: int | None = 64,
        guess_free: bool = True,
    ) -> None:
        if rows is None or cols is None or num_mines is None or max_turns is None:
            self._level = None
        else:
            require(rows >= 1 and cols >= 1 and max_turns >= 1, "rows, cols and max_turns must be at least 1")
            room = rows * cols - min(rows, 3) * min(cols, 3)
            require(1 <= num_mines <= room, f"a {rows}x{cols} field holds 1 to {room} mines, got {num_mines}")
            self._level = (rows, cols, num_mines, max_turns)
        self._guess_free = guess_free

    def begin(self) -> None:
        if self._level is None:
            side = self.draw(_RANDOM_SIDES)
            self.rows, self.columns, self.num_mines, self.max_turns = side, side, side**2 // 5, side**2
        else:
            self.rows, self.columns, self.num_mines, self.max_turns = self._level
        self.everything = (1 << self.rows * self.columns) - 1
        self.mines = 0  # placed at the first reveal
        self.opened = 0
        self.flags = 0
        self.marks = ["."] * (self.rows * self.columns)
        """The mark of every cell."""

    def rules(self) -> str:
        return (
            f"You are playing Minesweeper on a field of {self.rows} rows and {self.columns} columns, both counted from 0, with "
            f"{self.num_mines} mines.\n"
            f"Reveal every cell without a mine within {self.max_turns} turns. A revealed cell shows how many of the cells "
            f"around it hold mines; where there are none, the cells around it open too. The first reveal is always safe; "
            f"revealing a mine ends the game. A flag ('F') keeps a cell closed until you flag it again.\n"
            f"Think as long as you like, then give your move inside \\boxed{{}}, for example {boxed('reveal', 0, 1)} or "
            f"{boxed('flag', 2, 0)} (row, then column)."
        )

    def view(self) -> str:
        return "The field ('.' is a closed cell):\n" + numbered_grid(self.marks, self.columns)

    def read(self, answer: str) -> Touch | None:
        found = _TOUCH.fullmatch(answer)
        if not found:
            return None
        row, column = whole_number(found[2]), whole_number(found[3])
        return None if row is None or column is None else Touch(found[1].lower(), row, column)

    def play(self, move: Touch) -> MoveOutcome:
        said = f"At turn {self.turn}, you chose to {move.verb} the cell in row {move.row}, column {move.column}, "
        if move.row >= self.rows or move.column >= self.columns:
            return MoveOutcome(f"{said}which is outside the field.")
        cell = move.row * self.columns + move.column
        bit = 1 << cell
        if self.opened & bit:
            return MoveOutcome(f"{said}which is open already.")
        if move.verb == "flag":
            self.flags ^= bit
            self.marks[cell] = "F" if self.flags & bit else "."
            return MoveOutcome(f"{said}and {'put a flag there' if self.flags & bit else 'took the flag away'}.")
        if self.flags & bit:
            return MoveOutcome(f"{said}which has a flag on it.")
        return self._reveal(cell, said)

    def _reveal(self, cell: int, said: str) -> MoveOutcome:
        near = neighbors(self.rows, self.columns)
        if not self.mines:
            self.mines = self._lay(cell)
        if self.mines >> cell & 1:
            return MoveOutcome(f"{said}and hit a mine. The game is over.", over=True)
        fresh = opening(near, self.mines, cell, self.everything & ~self.opened & ~self.flags)
        self.opened |= fresh
        for opened in bits(fresh):
            self.marks[opened] = str((near[opened] & self.mines).bit_count())
        reward = fresh.bit_count() / (self.rows * self.columns - self.num_mines)
        if self.opened | self.mines == self.everything:
            return MoveOutcome(f"{said}and the field is cleared. Well done!", reward, solved=True)
        return MoveOutcome(f"{said}which opened {fresh.bit_count()} cell(s).", reward)

    def _lay(self, first: int) -> int:
        """Place the mines for a player who starts at ``first``."""
        near = neighbors(self.rows, self.columns)
        room = list(bits(self.everything & ~near[first] & ~(1 << first)))
        mines = 0
        for _ in range(_MOST_FIELDS):
            mines = sum(1 << room[place] for place in self.rng.permutation(len(room))[: self.num_mines].tolist())
            if not self._guess_free or solvable(near, mines, first):
                break
        return mines

    def oracle(self) -> str:
        near = neighbors(self.rows, self.columns)
        closed = self.everything & ~self.opened
        if not self.mines:
            cell = self.rows // 2 * self.columns + self.columns // 2
        else:
            safe = conclude(near, self.mines, self.opened, closed).safe
            cell = next(bits(safe)) if safe else least_risky(near, self.mines, self.opened, closed)
        verb = "flag" if self.flags >> cell & 1 else "reveal"
        return boxed(verb, *divmod(cell, self.columns))

    def sample_random_action(self) -> str:
        verb = "flag" if self.action_rng.random() < 0.1 else "reveal"
        cell = self.draw_action(list(bits(self.everything & ~self.opened)))
        return boxed(verb, *divmod(cell, self.columns))

    def constant_answers(self) -> list[str]:
        # The first reveal opens its neighborhood, which is larger in the middle; later ones are refused.
        size = self._level or (8, 8)
        return [boxed("reveal", size[0] // 2, size[1] // 2), boxed("reveal", 2, 2)]
