"""Word search: find words hidden across or down in a grid of letters."""

import copy
from functools import cache
from typing import NamedTuple

from palestra.envs.games.game import Game, Outcome, boxed, require, whole_numbers
from palestra.envs.games.words import common_words, rare_words

__all__ = ["Line", "WordSearch"]

_RANDOM_LEVELS: tuple[tuple[bool, int, int], ...] = ((False, 5, 20), (True, 5, 20))
"""Hard words, number of words, turns."""

_LENGTHS = (4, 5, 6, 7, 8)

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_FLOOR_GRIDS = 100

Cell = tuple[int, int]


class Line(NamedTuple):
    """From one cell to another; rows and columns count from 0."""

    row: int
    column: int
    end_row: int
    end_column: int

    def cells(self) -> list[Cell]:
        """All cells of the line, which runs across or down, either way."""
        length = max(abs(self.end_row - self.row), abs(self.end_column - self.column))
        down = (self.end_row > self.row) - (self.end_row < self.row)
        right = (self.end_column > self.column) - (self.end_column < self.column)
        return [(self.row + step * down, self.column + step * right) for step in range(length + 1)]


class WordSearch(Game[Line]):
    """Mark hidden words by where they begin and end. They run to the right or down and may cross.

    Each word found pays 1/(words). The easy game lists the words; ``hardcore`` takes rarer ones and tells only how long they
    are. Parameters of ``None`` draw the level for each task. A word counts wherever it stands, should chance have written it
    twice.
    """

    def __init__(self, num_words: int | None = 5, max_turns: int | None = 20, hardcore: bool | None = True) -> None:
        if num_words is None or max_turns is None or hardcore is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(1 <= num_words <= 20, f"num_words is 1 to 20, got {num_words}")
            require(max_turns >= num_words, f"{num_words} words need as many turns at least, got {max_turns}")
            self._levels = ((hardcore, num_words, max_turns),)

    @property
    def floor(self) -> float:
        # The same line at every turn is looked at once: tallied over some grids for all lines at once.
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
        self.grid: dict[Cell, str] = {}
        self.hidden: dict[str, Line] = {}
        self.side = round(1.5 * len(words[0]))
        while not self._hide(words):
            self.side += 1
        letters = self.rng.integers(len(_ALPHABET), size=self.side**2).tolist()
        every = ((row, column) for row in range(self.side) for column in range(self.side))
        self.grid = {cell: self.grid.get(cell) or _ALPHABET[letter] for cell, letter in zip(every, letters, strict=True)}
        self.tried: set[Line] = set()
        self.found: dict[str, Line] = {}

    def _hide(self, words: list[str]) -> bool:
        """Lay the words into an empty grid; ``False`` if it is too small."""
        self.grid, self.hidden = {}, {}
        for word in words:
            lines = _lines(self.side, len(word))
            order = (lines[place] for place in self.rng.permutation(len(lines)).tolist())
            line = next((line for line in order if self._fits(word, line)), None)
            if line is None:
                return False
            self.hidden[word] = line
            self.grid |= dict(zip(line.cells(), word, strict=True))
        return True

    def _fits(self, word: str, line: Line) -> bool:
        return all(self.grid.get(cell, letter) == letter for cell, letter in zip(line.cells(), word, strict=True))

    def rules(self) -> str:
        words = sorted(self.hidden)
        told = ", ".join(words) if not self.hardcore else "of " + ", ".join(map(str, sorted(map(len, words)))) + " letters"
        return (
            f"You are playing a word search.\n"
            f"Find the {len(words)} English words hidden in the grid, {told}, within {self.max_turns} turns. They run across "
            f"(to the right) or down. Letters of words that you found are shown in brackets. Rows and columns count from 0.\n"
            f"Think as long as you like, then give the row and column of the first letter and the row and column of the last "
            f"letter inside \\boxed{{}}, for example {boxed(1, 1, 1, 5)}."
        )

    def view(self) -> str:
        marked = {cell for line in self.found.values() for cell in line.cells()}
        lines = ["    " + " ".join(f"{column:^3}" for column in range(self.side))]
        for row in range(self.side):
            cells = ((row, column) for column in range(self.side))
            marks = (f"[{self.grid[cell]}]" if cell in marked else f" {self.grid[cell]} " for cell in cells)
            lines.append(f"{row:2}  " + " ".join(marks))
        return f"The grid ({len(self.found)} of {len(self.hidden)} words found):\n" + "\n".join(lines)

    def read(self, answer: str) -> Line | None:
        numbers = whole_numbers(answer)
        return Line(*numbers) if numbers is not None and len(numbers) == 4 else None

    def play(self, move: Line) -> Outcome:
        said = (
            f"At turn {self.turn}, you marked row {move.row}, column {move.column} to row {move.end_row}, column "
            f"{move.end_column}, "
        )
        if max(move) >= self.side:
            return Outcome(f"{said}which is outside the grid.")
        if move in self.tried:
            return Outcome(f"{said}which you had marked before.")
        self.tried.add(move)
        if move.row != move.end_row and move.column != move.end_column:
            return Outcome(f"{said}which runs neither across nor down.")
        letters = "".join(self.grid[cell] for cell in move.cells())
        word = next((word for word in (letters, letters[::-1]) if word in self.hidden and word not in self.found), None)
        if word is None:
            return Outcome(f"{said}where no word is hidden that is not found yet.")
        self.found[word] = move
        reward = 1 / len(self.hidden)
        if len(self.found) == len(self.hidden):
            return Outcome(f"{said}and found {word}, the last word. Well done!", reward, solved=True)
        return Outcome(f"{said}and found {word}.", reward)

    def oracle(self) -> str:
        word = next(word for word in self.hidden if word not in self.found)
        return boxed(*self.hidden[word])

    def sample_random_action(self) -> str:
        fitting = [length for length in _LENGTHS if length <= self.side]
        return boxed(*self.draw_action(_lines(self.side, self.draw_action(fitting))))


@cache
def _lines(side: int, length: int) -> tuple[Line, ...]:
    """Every line of ``length`` cells to the right or down."""
    span = range(side - length + 1)
    across = [Line(row, start, row, start + length - 1) for row in range(side) for start in span]
    down = [Line(start, column, start + length - 1, column) for column in range(side) for start in span]
    return (*across, *down)
