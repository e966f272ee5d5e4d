"""Guess a hidden number from "higher" and "lower". Binary search is optimal."""

import math
from collections.abc import Sequence

from palestra.authoring.picture import Row, Tile
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_number

__all__ = ["GuessTheNumber"]

_LEAST_LOW, _MOST_LOW = 1, 10
_LEAST_SPAN, _MOST_SPAN = 5, 50


class GuessTheNumber(Game[int]):
    """Find a number between two bounds; the answer to a wrong guess is "higher" or "lower".

    The right number pays 1. When the turns run out, the last guess pays 1 - distance/range. If ``low`` and ``high`` are
    ``None``, each task draws the bounds and the turn limit.
    """

    def __init__(self, low: int | None = 1, high: int | None = 50, max_turns: int | None = 7) -> None:
        self._bounds = None if low is None or high is None else (low, high)
        self._turns = max_turns
        require(
            self._bounds is None or 0 <= self._bounds[0] < self._bounds[1], f"0 <= low < high must hold, got {low} and {high}"
        )
        require(max_turns is None or max_turns >= 1, f"max_turns must be at least 1, got {max_turns}")

    @property
    def floor(self) -> float:
        # The best constant guess is the middle: it pays for its distance when the turns run out.
        spans = range(_LEAST_SPAN, _MOST_SPAN + 1) if self._bounds is None else [self._bounds[1] - self._bounds[0]]
        return sum(map(_score_of_the_middle, spans)) / len(spans)

    def begin(self) -> None:
        if self._bounds is None:
            self.low = self.draw(range(_LEAST_LOW, _MOST_LOW + 1))
            self.high = self.low + self.draw(range(_LEAST_SPAN, _MOST_SPAN + 1))
        else:
            self.low, self.high = self._bounds
        self.max_turns = self._turns or math.ceil(math.sqrt(self.high - self.low)) + 1
        self.target = self.draw(range(self.low, self.high + 1))
        self.guesses: set[int] = set()
        # The range that the answers leave: the oracle halves it.
        self.least, self.most = self.low, self.high

    def rules(self) -> str:
        return (
            f"You are playing Guess The Number.\n"
            f"Find the hidden number between {self.low} and {self.high} (both included) within {self.max_turns} turns.\n"
            f"After each wrong guess you are told whether the number is higher or lower.\n"
            f"Think as long as you like, then give your guess inside \\boxed{{}}, for example {boxed(self.low + 1)}."
        )

    def read(self, answer: str) -> int | None:
        return whole_number(answer)

    def play(self, move: int) -> MoveOutcome:
        said = f"At turn {self.turn}, you guessed {move}, "
        if not self.low <= move <= self.high:
            return MoveOutcome(f"{said}which is outside {self.low} to {self.high}.")
        if move in self.guesses:
            return MoveOutcome(said + "which you had guessed before.")
        self.guesses.add(move)
        if move == self.target:
            return MoveOutcome(said + "and that is the number. Well done!", 1.0, solved=True)
        if move < self.target:
            if move >= self.least:
                self.least = move + 1
            return MoveOutcome(f"{said}and the number is higher than {move}.")
        if move <= self.most:
            self.most = move - 1
        return MoveOutcome(f"{said}and the number is lower than {move}.")

    def picture(self) -> Sequence[Row]:
        guesses = [Tile(str(guess), "good" if guess == self.target else "bad") for guess in sorted(self.guesses)]
        return [f"Between {self.low} and {self.high}, turn {self.turn} of {self.max_turns}", guesses]

    def consolation(self, move: int, outcome: MoveOutcome) -> float:
        if not self.low <= move <= self.high:
            return 0.0
        return 1.0 - abs(move - self.target) / (self.high - self.low)

    def oracle(self) -> str:
        return boxed((self.least + self.most) // 2)

    def sample_random_action(self) -> str:
        return boxed(self.draw_action(range(self.low, self.high + 1)))


def _score_of_the_middle(span: int) -> float:
    middle = span // 2
    return 1.0 - sum(abs(middle - target) for target in range(span + 1)) / (span * (span + 1))
