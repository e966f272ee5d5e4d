"""Crosswords: fill a small grid of crossing words, letter by letter, from clues."""

import copy
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_number
from palestra.suite.games.grids import numbered_grid

__all__ = ["CrosswordEntry", "Crosswords", "Letter"]

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


class CrosswordEntry(NamedTuple):
    """A word in the grid."""

    word: str
    row: int
    column: int
    across: bool

    def cells(self) -> list[Cell]:
        """Return the cells of its letters, in order."""
        length = range(len(self.word))
        return [(self.row, self.column + step) if self.across else (self.row + step, self.column) for step in length]


class Crosswords(Game[Letter]):
    """Fill in the letters. Every word crosses another one, and the clues say where each word begins.

    A right letter pays 1/(cells), so a full grid pays 1 in total; a wrong letter uses up its turn. There are never more cells
    than turns. ``hardcore`` uses rarer words. If a parameter is ``None``, each task draws its own level.
    """

    def __init__(self, hardcore: bool | None = True, num_words: int | None = 3, max_turns: int | None = 40) -> None:
        if hardcore is None or num_words is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(1 <= num_words <= 12, f"num_words must be 1 to 12, got {num_words}")
            require(max_turns >= 6 * num_words, f"{num_words} words need at least {6 * num_words} turns, got {max_turns}")
            self._levels = ((hardcore, num_words, max_turns),)

    @property
    def floor(self) -> float:
        # The same cell and letter at every turn: counted over some grids for all of them at once.
        earned: dict[tuple[Cell, str], float] = {}
        twin = copy.copy(self)
        for seed in range(_FLOOR_GRIDS):
            twin.reset(seed=seed)
            for at in twin.solution.items():
                earned[at] = earned.get(at, 0.0) + 1 / len(twin.solution) / _FLOOR_GRIDS
        return max(earned.values())

    def begin(self) -> None:
        hardcore, num_words, self.max_turns = self.draw(self._levels)
        self.clues = _clue_of(hardcore)
        self.entries = self._draw_entries(_words(hardcore), num_words)
        self.solution: dict[Cell, str] = {}
        for entry in self.entries:
            self.solution.update(zip(entry.cells(), entry.word.upper(), strict=True))
        self.filled: dict[Cell, str] = {}
        self.columns = max([column for _, column in self.solution]) + 1
        rows = max([row for row, _ in self.solution]) + 1
        self.marks = ["."] * (rows * self.columns)
        """The mark of every cell, row by row."""
        for row, column in self.solution:
            self.marks[row * self.columns + column] = "_"

    def _draw_entries(self, words: Sequence[str], num_words: int) -> list[CrosswordEntry]:
        """Draw words that cross each other, in a grid of no more cells than turns."""
        while True:
            layout = _Layout()
            for _ in range(len(words)):
                word = self.draw(words)
                # The remaining words need room as well: about five cells each.
                room = self.max_turns - 5 * (num_words - len(layout.slots) - 1)
                self._place(layout, word, room)
                if len(layout.slots) == num_words:
                    return layout.entries()

    def _place(self, layout: "_Layout", word: str, room: int) -> None:
        """Place ``word`` in a way that fits a grid of at most ``room`` cells, if there is one."""
        ways = layout.ways(word)
        while ways:
            slot = _PlacedWord(word, *ways.pop(int(self.rng.random() * len(ways))))
            if layout.fits(slot, room):
                layout.add(slot)
                return

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
        return "The grid:\n" + numbered_grid(self.marks, self.columns)

    def read(self, answer: str) -> Letter | None:
        parts = answer.replace(",", " ").split()
        if len(parts) != 3 or len(parts[2]) != 1:
            return None
        row, column, letter = whole_number(parts[0]), whole_number(parts[1]), parts[2].upper()
        return Letter(row, column, letter) if row is not None and column is not None and letter in _ALPHABET else None

    def play(self, move: Letter) -> MoveOutcome:
        said = f"At turn {self.turn}, you wrote {move.letter} into row {move.row}, column {move.column}, "
        cell = (move.row, move.column)
        if cell not in self.solution:
            return MoveOutcome(f"{said}which is not part of a word.")
        if cell in self.filled:
            return MoveOutcome(f"{said}which is filled already.")
        if self.solution[cell] != move.letter:
            return MoveOutcome(f"{said}which is wrong.")
        self.filled[cell] = move.letter
        self.marks[move.row * self.columns + move.column] = move.letter
        reward = 1 / len(self.solution)
        if len(self.filled) == len(self.solution):
            return MoveOutcome(f"{said}and the grid is complete. Well done!", reward, solved=True)
        return MoveOutcome(f"{said}which is right.", reward)

    def oracle(self) -> str:
        cell = next(cell for cell in self.solution if cell not in self.filled)
        return boxed(*cell, self.solution[cell])

    def sample_random_action(self) -> str:
        cell = self.draw_action([cell for cell in self.solution if cell not in self.filled])
        return boxed(*cell, self.draw_action(_ALPHABET))


@cache
def _clues(hardcore: bool) -> tuple[tuple[str, str], ...]:
    text = files("palestra.suite.games").joinpath("data", "clues.tsv").read_text("utf-8")
    easy, hard = text.split("\n\n")
    pairs = (line.split("\t") for line in (hard if hardcore else easy).splitlines())
    return tuple((word, clue) for word, clue in pairs)


@cache
def _words(hardcore: bool) -> tuple[str, ...]:
    return tuple(word for word, _ in _clues(hardcore))


@cache
def _clue_of(hardcore: bool) -> dict[str, str]:
    return dict(_clues(hardcore))


_STRIDE = 1024
"""Distance from a cell to the one below it. Wider than any grid, so that lines never continue in the next row."""
_MIDDLE = _STRIDE * (_STRIDE // 2) + _STRIDE // 2


class _PlacedWord(NamedTuple):
    """A word, the number of its first cell, and the step from cell to cell."""

    word: str
    start: int
    step: int

    def cells(self) -> range:
        return range(self.start, self.start + len(self.word) * self.step, self.step)


class _Layout:
    """A crossword under construction. A cell is one number, ``_STRIDE`` times its row plus its column."""

    def __init__(self) -> None:
        self.slots: list[_PlacedWord] = []
        self._letters: dict[int, str] = {}

    def ways(self, word: str) -> list[tuple[int, int]]:
        """Return every way to place ``word`` across a placed one, fitting or not; none for a word that is placed already.

        A way is the first cell and the step from cell to cell.
        """
        if not self.slots:
            return [(_MIDDLE, 1), (_MIDDLE, _STRIDE)]
        found: dict[tuple[int, int], None] = {}
        for slot in self.slots:
            if slot.word == word:
                return []
            step = _STRIDE if slot.step == 1 else 1
            for cell, letter in zip(slot.cells(), slot.word, strict=True):
                place = word.find(letter)
                while place != -1:
                    found[cell - place * step, step] = None
                    place = word.find(letter, place + 1)
        return list(found)

    def fits(self, slot: _PlacedWord, room: int) -> bool:
        """Return whether only letters of the same word touch, and the grid stays within ``room`` cells."""
        letters, (word, start, step) = self._letters, slot
        aside = _STRIDE if step == 1 else 1
        if start - step in letters or start + len(word) * step in letters:
            return False
        size = len(letters)
        for cell, letter in zip(slot.cells(), word, strict=True):
            there = letters.get(cell)
            if there is None:
                size += 1
                if cell - aside in letters or cell + aside in letters:
                    return False
            elif there != letter:
                return False
        return size <= room

    def add(self, slot: _PlacedWord) -> None:
        """Place a word that fits."""
        self.slots.append(slot)
        self._letters.update(zip(slot.cells(), slot.word, strict=True))

    def entries(self) -> list[CrosswordEntry]:
        """Return the words, with rows and columns counted from 0."""
        top = min(self._letters) // _STRIDE
        left = min([slot.start % _STRIDE for slot in self.slots])
        return [
            CrosswordEntry(word, start // _STRIDE - top, start % _STRIDE - left, step == 1) for word, start, step in self.slots
        ]
