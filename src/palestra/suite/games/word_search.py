"""Word search: find words hidden across or down in a grid of letters."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from palestra.authoring.picture import Row, Tile
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_numbers
from palestra.suite.games.grids import numbered_grid
from palestra.suite.games.words import common_words, rare_words

__all__ = ["Line", "WordSearch"]

_RANDOM_LEVELS: tuple[tuple[bool, int, int], ...] = ((False, 5, 20), (True, 5, 20))
"""Hard words, number of words, turns."""

_LENGTHS = (4, 5, 6, 7, 8)

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_FLOOR_GRIDS = 100

_DRAWS = 10
"""Number of lines tried for a word before all are examined; nearly always one of the first two is free."""


class Line(NamedTuple):
    """A line from one cell to another; rows and columns count from 0."""

    row: int
    column: int
    end_row: int
    end_column: int

    def cells(self, side: int) -> range:
        """Return all cells of the line, which runs across or down, either way; counted row by row in ``side`` columns."""
        first, last = self.row * side + self.column, self.end_row * side + self.end_column
        step = (1 if self.row == self.end_row else side) * (1 if first <= last else -1)
        return range(first, last + step, step)


class WordSearch(Game[Line]):
    """Mark hidden words by their first and last cell. They run to the right or down and may cross.

    Each word found pays 1/(words). The easy game lists the words; ``hardcore`` uses rarer words and gives only their lengths.
    If a parameter is ``None``, each task draws its own level. If a word occurs twice by chance, both places count.
    """

    def __init__(self, num_words: int | None = 5, max_turns: int | None = 20, hardcore: bool | None = True) -> None:
        if num_words is None or max_turns is None or hardcore is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(1 <= num_words <= 20, f"num_words must be 1 to 20, got {num_words}")
            require(max_turns >= num_words, f"{num_words} words need at least {num_words} turns, got {max_turns}")
            self._levels = ((hardcore, num_words, max_turns),)

    @property
    def floor(self) -> float:
        # The same line at every turn counts once: counted over some grids for all lines at once.
        earned: dict[Line, float] = {}
        twin = copy.copy(self)
        for seed in range(_FLOOR_GRIDS):
            twin.reset(seed=seed)
            for line in twin.hidden.values():
                earned[line] = earned.get(line, 0.0) + 1 / len(twin.hidden) / _FLOOR_GRIDS
        return max(earned.values())

    def begin(self) -> None:
        self.hardcore, num_words, self.max_turns = self.draw(self._levels)
        words: list[str] = []
        while len(words) < num_words:
            listed = (rare_words if self.hardcore else common_words)(self.draw(_LENGTHS))
            word = self.draw(listed).upper()
            # A word inside another one would be found twice.
            if not any(word in other or other in word for other in words):
                words.append(word)
        words.sort(key=len, reverse=True)
        self.grid: list[str] = []
        """The letters, row by row; empty where there is none yet."""
        self.hidden: dict[str, Line] = {}
        self.side = round(1.5 * len(words[0]))
        while not self._hide(words):
            self.side += 1
        chances = self.rng.random(self.side**2).tolist()
        self.grid = [letter or _ALPHABET[int(26 * chance)] for letter, chance in zip(self.grid, chances, strict=True)]
        self.tried: set[Line] = set()
        self.found: dict[str, Line] = {}

    def _hide(self, words: list[str]) -> bool:
        """Place the words in an empty grid; return ``False`` if it is too small."""
        self.grid, self.hidden = [""] * self.side**2, {}
        for word in words:
            line = self._free_line(word)
            if line is None:
                return False
            self.hidden[word] = line
            for cell, letter in zip(line.cells(self.side), word, strict=True):
                self.grid[cell] = letter
        return True

    def _free_line(self, word: str) -> Line | None:
        """Draw a line where ``word`` fits; return ``None`` if there is none."""
        lines = _lines(self.side, len(word))
        for _ in range(_DRAWS):
            line = self.draw(lines)
            if self._fits(word, line):
                return line
        # The grid is nearly full for words of this length: examine every line before giving up.
        fitting = [line for line in lines if self._fits(word, line)]
        return self.draw(fitting) if fitting else None

    def _fits(self, word: str, line: Line) -> bool:
        cells = line.cells(self.side)
        there = self.grid[cells.start : cells[-1] + 1 : cells.step]
        return not any(there) or all(letter in ("", mine) for letter, mine in zip(there, word, strict=True))

    def rules(self) -> str:
        words = sorted(self.hidden)
        listed = ", ".join(words) if not self.hardcore else "of " + ", ".join(map(str, sorted(map(len, words)))) + " letters"
        return (
            f"You are playing a word search.\n"
            f"Find the {len(words)} English words hidden in the grid, {listed}, within {self.max_turns} turns. They run across "
            f"(to the right) or down. Letters of words that you found are shown in brackets. Rows and columns count from 0.\n"
            f"Think as long as you like, then give the row and column of the first letter and the row and column of the last "
            f"letter inside \\boxed{{}}, for example {boxed(1, 1, 1, 5)}."
        )

    def view(self) -> str:
        marks = [f" {letter} " for letter in self.grid]
        for line in self.found.values():
            for cell in line.cells(self.side):
                marks[cell] = f"[{self.grid[cell]}]"
        heading = f"The grid ({len(self.found)} of {len(self.hidden)} words found):\n"
        return heading + numbered_grid(marks, self.side, width=3)

    def picture(self) -> Sequence[Row]:
        # Hundreds of letters are easier to read in one color.
        return [row if isinstance(row, str) else [_calm(tile) for tile in row] for row in super().picture()]

    def read(self, answer: str) -> Line | None:
        numbers = whole_numbers(answer)
        return Line(*numbers) if numbers is not None and len(numbers) == 4 else None

    def play(self, move: Line) -> MoveOutcome:
        said = (
            f"At turn {self.turn}, you marked row {move.row}, column {move.column} to row {move.end_row}, column "
            f"{move.end_column}, "
        )
        if max(move) >= self.side:
            return MoveOutcome(f"{said}which is outside the grid.")
        if move in self.tried:
            return MoveOutcome(f"{said}which you had marked before.")
        self.tried.add(move)
        if move.row != move.end_row and move.column != move.end_column:
            return MoveOutcome(f"{said}which runs neither across nor down.")
        letters = "".join([self.grid[cell] for cell in move.cells(self.side)])
        word = next((word for word in (letters, letters[::-1]) if word in self.hidden and word not in self.found), None)
        if word is None:
            return MoveOutcome(f"{said}where no word is hidden that is not found yet.")
        self.found[word] = move
        reward = 1 / len(self.hidden)
        if len(self.found) == len(self.hidden):
            return MoveOutcome(f"{said}and found {word}, the last word. Well done!", reward, solved=True)
        return MoveOutcome(f"{said}and found {word}.", reward)

    def oracle(self) -> str:
        word = next(word for word in self.hidden if word not in self.found)
        return boxed(*self.hidden[word])

    def sample_random_action(self) -> str:
        fitting = [length for length in _LENGTHS if length <= self.side]
        return boxed(*self.draw_action(_lines(self.side, self.draw_action(fitting))))


def _calm(tile: Tile) -> Tile:
    return tile if tile.kind else Tile(tile.text, "bad")


@cache
def _lines(side: int, length: int) -> tuple[Line, ...]:
    """Return every line of ``length`` cells to the right or down."""
    span = range(side - length + 1)
    across = [Line(row, start, row, start + length - 1) for row in range(side) for start in span]
    down = [Line(start, column, start + length - 1, column) for column in range(side) for start in span]
    return (*across, *down)
