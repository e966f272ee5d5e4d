"""Countdown: reach a number by calculating with others."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from palestra.authoring.picture import Row, Tile
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_number

__all__ = ["Calculation", "Countdown", "calculated"]

_SMALL = range(1, 11)
_LARGE = (25, 50, 75, 100)

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((3, 5), (4, 6), (5, 8), (6, 10))
"""Number of numbers, turns."""

_LONGEST = 120
"""Most characters of an expression, so that brackets cannot nest too deeply."""

_WRITTEN = {"×": "*", "·": "*", "÷": "/", "−": "-", "\\times": "*", "\\cdot": "*", "\\div": "/"}
_TOKEN = re.compile(r"\s*(\d+|[-+*/()])", re.ASCII)


class Calculation(NamedTuple):
    """A parsed expression."""

    numbers: tuple[int, ...]
    """The numbers that it uses, in order."""
    value: int | None
    """Its value; ``None`` if a division has a remainder."""


class Countdown(Game[Calculation]):
    """Write an expression with the given numbers, each used at most once, whose value is the target.

    The right expression pays 1. Any other expression uses up a turn and gets its value as the answer. Divisions must leave no
    remainder. The easy game has three small numbers; larger games have up to two large ones. The target is computed from the
    numbers, so it can be reached, and the oracle knows how. If ``num_numbers`` or ``max_turns`` is ``None``, each task draws
    both.
    """

    def __init__(self, num_numbers: int | None = 6, max_turns: int | None = 10) -> None:
        if num_numbers is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(3 <= num_numbers <= 6 and max_turns >= 1, "num_numbers must be 3 to 6 and max_turns at least 1")
            self._levels = ((num_numbers, max_turns),)

    def begin(self) -> None:
        count, self.max_turns = self.draw(self._levels)
        least, most = (10, 100) if count < 5 else (100, 999)
        self.numbers: list[int] = []
        self.target = 0
        while not least <= self.target <= most or self.target in self.numbers:
            large = int(self.rng.integers(3)) if count >= 5 else 0
            self.numbers = [self.draw(_LARGE) for _ in range(large)] + [self.draw(_SMALL) for _ in range(count - large)]
            self.target, self.solution = self._combine()

    def _combine(self) -> tuple[int, str]:
        """Combine all numbers at random; return the value and the expression."""
        pool = [(number, str(number)) for number in self.numbers]
        while len(pool) > 1:
            first = pool.pop(int(self.rng.integers(len(pool))))
            second = pool.pop(int(self.rng.integers(len(pool))))
            (a, left), (b, right) = max(first, second), min(first, second)
            ways = [(a + b, f"({left} + {right})")]
            if a > b:
                ways.append((a - b, f"({left} - {right})"))
            if b > 1:
                ways.append((a * b, f"({left} * {right})"))
            if b > 1 and a % b == 0:
                ways.append((a // b, f"({left} / {right})"))
            pool.append(self.draw(ways))
        value, formula = pool[0]
        return value, formula[1:-1]

    def rules(self) -> str:
        return (
            f"You are playing Countdown.\n"
            f"Using the numbers {', '.join(map(str, self.numbers))}, each at most once, and + - * / with brackets, write an "
            f"expression that comes to {self.target}. Divisions must come out even. You have {self.max_turns} tries.\n"
            f"Think as long as you like, then give your expression inside \\boxed{{}}, for example {boxed('(1 + 2) * 3')}."
        )

    def read(self, answer: str) -> Calculation | None:
        if len(answer) > _LONGEST:
            return None
        for written, sign in _WRITTEN.items():
            answer = answer.replace(written, sign)
        return calculated(answer)

    def play(self, move: Calculation) -> MoveOutcome:
        said = f"At turn {self.turn}, your expression "
        if Counter(move.numbers) - Counter(self.numbers):
            return MoveOutcome(f"{said}uses a number that is not given, or one too often.")
        if move.value is None:
            return MoveOutcome(f"{said}has a division that does not come out even.")
        if move.value == self.target:
            return MoveOutcome(f"{said}comes to {self.target}. Well done!", 1.0, solved=True)
        return MoveOutcome(f"{said}comes to {move.value}, not to {self.target}.")

    def picture(self) -> Sequence[Row]:
        return [[Tile(str(number), "1") for number in self.numbers], [Tile("target", "label"), Tile(str(self.target), "good")]]

    def oracle(self) -> str:
        return boxed(self.solution)

    def sample_random_action(self) -> str:
        order = self.action_rng.permutation(len(self.numbers)).tolist()
        parts = [str(self.numbers[order[0]])]
        for place in order[1 : 1 + int(self.action_rng.integers(1, len(order)))]:
            parts += [self.draw_action("+-*/"), str(self.numbers[place])]
        return boxed(*parts)


def calculated(text: str) -> Calculation | None:
    """Return the value of the expression ``text``; ``None`` if it is not one. No part of it is run as code."""
    tokens: list[str] = []
    place = 0
    text = text.strip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found or len(found[1]) > 9:
            return None
        tokens.append(found[1])
        place = found.end()
    reader = _Reader(tokens)
    try:
        value = reader.sum()
    except _NotAnExpression:
        return None
    if reader.place != len(tokens):
        return None
    return Calculation(tuple(number for number in map(whole_number, tokens) if number is not None), value)


class _NotAnExpression(Exception):
    """The tokens do not form an expression."""


class _Reader:
    """Parses tokens from left to right: sums of products of numbers and brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.place = 0

    def sum(self) -> int | None:
        value = self.product()
        while (sign := self._take("+-")) is not None:
            other = self.product()
            value = None if value is None or other is None else value + other if sign == "+" else value - other
        return value

    def product(self) -> int | None:
        value = self.single()
        while (sign := self._take("*/")) is not None:
            other = self.single()
            if value is None or other is None or (sign == "/" and (other == 0 or value % other)):
                value = None
            else:
                value = value * other if sign == "*" else value // other
        return value

    def single(self) -> int | None:
        if self._take("(") is None:
            number = whole_number(self.tokens[self.place]) if self.place < len(self.tokens) else None
            if number is None:
                raise _NotAnExpression
            self.place += 1
            return number
        value = self.sum()
        if self._take(")") is None:
            raise _NotAnExpression
        return value

    def _take(self, signs: str) -> str | None:
        if self.place < len(self.tokens) and self.tokens[self.place] in signs:
            self.place += 1
            return self.tokens[self.place - 1]
        return None
