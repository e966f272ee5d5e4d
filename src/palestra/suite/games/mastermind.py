"""Mastermind: find a secret code from black and white pegs."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product
from operator import eq

from numpy.random import Generator

from palestra.authoring.picture import Row, Tile
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_numbers

__all__ = ["Mastermind"]

Code = tuple[int, ...]

_RANDOM_LEVELS: tuple[tuple[int, int, int], ...] = ((2, 4, 10), (4, 6, 20), (4, 8, 30))
"""Length of the code, number of different numbers, turns."""


class Mastermind(Game[Code]):
    """Guess a code of numbers. A black peg is a right number in its place, a white peg a right number elsewhere.

    Every black peg beyond the best guess so far pays 1/length, so the code pays 1 in total. If a parameter is ``None``, each
    task draws its own level. The oracle guesses the first code that fits all answers so far: it needs 3.4 guesses on average
    on easy (at most 5) and 4.9 on hard (at most 7).
    """

    def __init__(
        self,
        code_length: int | None = 4,
        num_numbers: int | None = 8,
        max_turns: int | None = 30,
        duplicate_numbers: bool = False,
    ) -> None:
        if code_length is None or num_numbers is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(code_length >= 1 and max_turns >= 1, "code_length and max_turns must be at least 1")
            enough = 1 if duplicate_numbers else code_length
            require(num_numbers >= enough, f"num_numbers must be at least {enough}, got {num_numbers}")
            self._levels = ((code_length, num_numbers, max_turns),)
        self.duplicates = duplicate_numbers

    @property
    def floor(self) -> float:
        # A constant guess has each place right in one of num_numbers tasks.
        return sum(1 / level[1] for level in self._levels) / len(self._levels)

    def begin(self) -> None:
        self.length, self.numbers, self.max_turns = self.draw(self._levels)
        self.code: Code = self._drawn(self.rng)
        self.best = 0
        self.answers: dict[Code, tuple[int, int]] = {}

    def rules(self) -> str:
        return _rules(self.length, self.numbers, self.max_turns, self.duplicates)

    def read(self, answer: str) -> Code | None:
        return whole_numbers(answer)

    def play(self, move: Code) -> MoveOutcome:
        if len(move) != self.length:
            return MoveOutcome(f"At turn {self.turn}, you guessed {len(move)} number(s), but the code has {self.length}.")
        said = f"At turn {self.turn}, you guessed {' '.join(map(str, move))}, "
        if min(move) < 1 or max(move) > self.numbers:
            return MoveOutcome(f"{said}which has numbers outside 1 to {self.numbers}.")
        if move in self.answers:
            return MoveOutcome(f"{said}which you had guessed before.")
        black, white = self.answers[move] = pegs(move, self.code)
        reward = max(0, black - self.best) / self.length
        self.best = max(self.best, black)
        if black == self.length:
            return MoveOutcome(f"{said}and that is the code. Well done!", reward, solved=True)
        return MoveOutcome(f"{said}which earns {black} black and {white} white peg(s).", reward)

    def picture(self) -> Sequence[Row]:
        rows: list[Row] = [f"{self.length} of the numbers 1 to {self.numbers}, turn {self.turn} of {self.max_turns}"]
        for guess, (black, white) in self.answers.items():
            pegs_tile = Tile(f"{black} black, {white} white", "label")
            rows.append([*(Tile(str(number)) for number in guess), pegs_tile])
        return rows

    def oracle(self) -> str:
        fits = (code for code in self._codes() if all(pegs(guess, code) == got for guess, got in self.answers.items()))
        return boxed(*next(fits))

    def sample_random_action(self) -> str:
        return boxed(*self._drawn(self.action_rng))

    def _drawn(self, rng: Generator) -> Code:
        if self.duplicates:
            return tuple(rng.integers(1, self.numbers + 1, size=self.length).tolist())
        return tuple(number + 1 for number in rng.permutation(self.numbers)[: self.length].tolist())

    def _codes(self) -> Iterator[Code]:
        numbers = range(1, self.numbers + 1)
        return product(numbers, repeat=self.length) if self.duplicates else permutations(numbers, self.length)


@lru_cache
def _rules(length: int, numbers: int, turns: int, duplicates: bool) -> str:
    twice = "may occur more than once" if duplicates else "occurs at most once"
    return (
        f"You are playing Mastermind.\n"
        f"Find the secret code of {length} numbers, each from 1 to {numbers}, within {turns} turns. "
        f"A number {twice} in the code.\n"
        f"Each guess is answered by black pegs (right number, right place) and white pegs (right number, wrong place).\n"
        f"Think as long as you like, then give your guess inside \\boxed{{}}, for example "
        f"{boxed(*range(1, length + 1)) if length <= numbers else boxed(*[1] * length)}."
    )


def pegs(guess: Code, code: Code) -> tuple[int, int]:
    """Return the black and white pegs that ``guess`` earns against ``code``."""
    black = sum(map(eq, guess, code))
    left = list(code)
    for number in guess:
        if number in left:
            left.remove(number)
    return black, len(code) - len(left) - black
