"""Crosswords: fill a small grid of crossing words, letter by letter, from clues."""

import copy
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from palestra.envs.games.game import Game, Outcome, boxed, require, whole_number

__all__ = ["Crosswords", "Entry", "Letter"]

_RANDOM_LEVELS: tuple[tuple[bool, int, int], ...] = ((False, 3, 20), (True, 3, 20))
"""Hard words, number of words, turns."""

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_FLOOR_GRIDS = 100

Cell = tuple[int, int]


class Letter(NamedTuple):
    """Write a letter into a cell; rows and columns count from 0."""

    row: int
    column: int
    letter: str


class Entry(NamedTuple):
    """A word in the grid."""

    word: str
    row: int
    column: int
    across: bool

    def cells(self) -> list[Cell]:
        """The cells of its letters, in order."""
        length = range(len(self.word))
        return [(self.row, self.column + step) if self.across else (self.row + step, self.column) for step in length]


class Crosswords(Game[Letter]):
    """Fill in the letters. Every word crosses another one, and clues tell where each begins.

    A right letter pays 1/(cells), so a full grid is worth 1; a wrong one costs its turn. There are never more cells than turns.
    ``hardcore`` takes rarer words. Parameters of ``None`` draw the level for each task.
    """

    def __init__(self, hardcore: bool | None = True, num_words: int | None = 3, max_turns: int | None = 40) -> None:
        if hardcore is None or num_words is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(1 <= num_words <= 12, f"num_words is 1 to 12, got {num_words}")
            require(max_turns >= 6 * num_words, f"{num_words} words need at least {6 * num_words} turns, got {max_turns}")
            self._levels = ((hardcore, num_words, max_turns),)

    @property
    def floor(self) -> float:
        # One cell and letter, always the same: tallied over some grids for all of them at once.
        earned: dict[tuple[Cell, str], float] = {}
        twin = copy.copy(self)
        for seed in range(_FLOOR_GRIDS):
            twin.reset(seed=seed)
            for at in twin.solution.items():
                earned[at] = earned.get(at, 0.0) + 1 / len(twin.solution) / _FLOOR_GRIDS
        return max(earned.values())

    def begin(self) -> None:
        hardcore, num_words, self.max_turns = self.draw(self._levels)
        self.entries = self._draw_entries([word for word, _ in _clues(hardcore)], num_words)
        self.clues = dict(_clues(hardcore))
        self.solution = {
            cell: letter for entry in self.entries for cell, letter in zip(entry.cells(), entry.word.upper(), strict=True)
        }
        self.filled: dict[Cell, str] = {}

    def _draw_entries(self, words: list[str], num_words: int) -> list[Entry]:
        """Words that cross each other, in a grid of no more cells than turns."""
        while True:
            order = [words[place] for place in self.rng.permutation(len(words)).tolist()]
            entries: list[Entry] = []
            for word in order:
                # Words still to come need room as well: about five cells each.
                room = self.max_turns - 5 * (num_words - len(entries) - 1)
                ways = _crossings(entries, word) if entries else [Entry(word, 0, 0, True), Entry(word, 0, 0, False)]
                options = [new for new in ways if len(_grid([*entries, new])) <= room]
                if options:
                    entries.append(self.draw(options))
                if len(entries) == num_words:
                    return _moved_to_origin(entries)

    def rules(self) -> str:
        lines = [
            f"{number}. {self.clues[entry.word]} ({len(entry.word)} letters, {'across' if entry.across else 'down'} from row "
            f"{entry.row}, column {entry.column})"
            for number, entry in enumerate(self.entries, start=1)
        ]
        return (
            f"You are solving a crossword.\n"
            f"Fill all {len(self.solution)} empty cells ('_') within {self.max_turns} turns, one letter a turn. A wrong letter "
            f"is refused. Rows and columns count from 0.\n"
            f"Think as long as you like, then give row, column and letter inside \\boxed{{}}, for example {boxed(0, 1, 'A')}.\n"
            f"The clues:\n" + "\n".join(lines)
        )

    def view(self) -> str:
        rows = max(row for row, _ in self.solution) + 1
        columns = max(column for _, column in self.solution) + 1
        lines = ["    " + " ".join(f"{column:2}" for column in range(columns))]
        for row in range(rows):
            lines.append(f"{row:2}  " + " ".join(f" {self._mark((row, column))}" for column in range(columns)))
        return "The grid:\n" + "\n".join(lines)

    def _mark(self, cell: Cell) -> str:
        return self.filled.get(cell, "_") if cell in self.solution else "."

    def read(self, answer: str) -> Letter | None:
        parts = answer.replace(",", " ").split()
        if len(parts) != 3 or len(parts[2]) != 1:
            return None
        row, column, letter = whole_number(parts[0]), whole_number(parts[1]), parts[2].upper()
        return Letter(row, column, letter) if row is not None and column is not None and letter in _ALPHABET else None

    def play(self, move: Letter) -> Outcome:
        said = f"At turn {self.turn}, you wrote {move.letter} into row {move.row}, column {move.column}, "
        cell = (move.row, move.column)
        if cell not in self.solution:
            return Outcome(f"{said}which is not part of a word.")
        if cell in self.filled:
            return Outcome(f"{said}which is filled already.")
        if self.solution[cell] != move.letter:
            return Outcome(f"{said}which is wrong.")
        self.filled[cell] = move.letter
        reward = 1 / len(self.solution)
        if len(self.filled) == len(self.solution):
            return Outcome(f"{said}and the grid is complete. Well done!", reward, solved=True)
        return Outcome(f"{said}which is right.", reward)

    def oracle(self) -> str:
        cell = next(cell for cell in self.solution if cell not in self.filled)
        return boxed(*cell, self.solution[cell])

    def sample_random_action(self) -> str:
        cell = self.draw_action([cell for cell in self.solution if cell not in self.filled])
        return boxed(*cell, self.draw_action(_ALPHABET))


@cache
def _clues(hardcore: bool) -> tuple[tuple[str, str], ...]:
    text = files("palestra.envs.games").joinpath("data", "clues.tsv").read_text("utf-8")
    easy, hard = text.split("\n\n")
    pairs = (line.split("\t") for line in (hard if hardcore else easy).splitlines())
    return tuple((word, clue) for word, clue in pairs)


def _grid(entries: list[Entry]) -> dict[Cell, str]:
    return {cell: letter for entry in entries for cell, letter in zip(entry.cells(), entry.word, strict=True)}


def _crossings(entries: list[Entry], word: str) -> list[Entry]:
    """Every way to lay ``word`` across one of ``entries`` so that no letters touch that do not belong together."""
    grid = _grid(entries)
    found = []
    for entry in entries:
        for (row, column), letter in zip(entry.cells(), entry.word, strict=True):
            for place, mine in enumerate(word):
                if mine == letter:
                    start = (row - place, column) if entry.across else (row, column - place)
                    found.append(Entry(word, *start, not entry.across))
    return [entry for entry in dict.fromkeys(found) if _fits(grid, entry)]


def _fits(grid: dict[Cell, str], entry: Entry) -> bool:
    cells = entry.cells()
    ahead, aside = ((0, 1), (1, 0)) if entry.across else ((1, 0), (0, 1))
    first, last = cells[0], cells[-1]
    if (first[0] - ahead[0], first[1] - ahead[1]) in grid or (last[0] + ahead[0], last[1] + ahead[1]) in grid:
        return False
    for (row, column), letter in zip(cells, entry.word, strict=True):
        beside = ((row - aside[0], column - aside[1]), (row + aside[0], column + aside[1]))
        if grid.get((row, column), letter) != letter:
            return False
        if (row, column) not in grid and any(cell in grid for cell in beside):
            return False
    return True


def _moved_to_origin(entries: list[Entry]) -> list[Entry]:
    top, left = min(entry.row for entry in entries), min(entry.column for entry in entries)
    return [entry._replace(row=entry.row - top, column=entry.column - left) for entry in entries]
