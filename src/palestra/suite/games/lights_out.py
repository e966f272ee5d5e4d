"""Lights out: pressing a light toggles it and its neighbors; turn all of them off."""

from functools import cache, reduce
from itertools import combinations
from operator import xor

from palestra.suite.games.bitsets import bits
from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_numbers

__all__ = ["LightsOut"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((3, 15), (4, 20), (5, 30))
"""Side, turns."""

Press = tuple[int, int]


class LightsOut(Game[Press]):
    """Turn all lights off. A press toggles a light and those above, below, left and right of it.

    The reward is 1 when all lights are off. The start is made by random presses from the solved board, so it can be solved;
    all such boards are equally likely. If ``size`` or ``max_turns`` is ``None``, each task draws both. The oracle needs the
    fewest presses.
    """

    def __init__(self, size: int | None = 5, max_turns: int | None = 30) -> None:
        if size is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(2 <= size <= 8, f"size must be 2 to 8, got {size}")
            require(max_turns >= size**2, f"up to {size**2} presses are needed, got max_turns={max_turns}")
            self._levels = ((size, max_turns),)

    def begin(self) -> None:
        self.size, self.max_turns = self.draw(self._levels)
        self.lights = self.to_press = 0
        while not self.lights:
            self.to_press = sum(1 << cell for cell, on in enumerate(self.rng.integers(2, size=self.size**2)) if on)
            self.lights = reduce(xor, (_toggled(self.size)[cell] for cell in bits(self.to_press)), 0)

    def rules(self) -> str:
        return (
            f"You are playing Lights Out on a board of {self.size} by {self.size} lights.\n"
            f"Turn all lights off within {self.max_turns} turns. Pressing a light toggles it and the lights directly above, "
            f"below, left and right of it. '*' is on, '.' is off; rows and columns count from 0.\n"
            f"Think as long as you like, then give the row and column to press inside \\boxed{{}}, for example {boxed(0, 1)}."
        )

    def view(self) -> str:
        marks = ["*" if self.lights >> cell & 1 else "." for cell in range(self.size**2)]
        rows = (" ".join(marks[start : start + self.size]) for start in range(0, len(marks), self.size))
        return "The lights:\n" + "\n".join(rows)

    def read(self, answer: str) -> Press | None:
        numbers = whole_numbers(answer)
        return (numbers[0], numbers[1]) if numbers is not None and len(numbers) == 2 else None

    def play(self, move: Press) -> MoveOutcome:
        row, column = move
        said = f"At turn {self.turn}, you pressed row {row}, column {column}"
        if max(move) >= self.size:
            return MoveOutcome(f"{said}, which is outside the board.")
        cell = row * self.size + column
        self.lights ^= _toggled(self.size)[cell]
        self.to_press ^= 1 << cell
        if not self.lights:
            return MoveOutcome(f"{said}. All lights are off. Well done!", 1.0, solved=True)
        return MoveOutcome(f"{said}.")

    def oracle(self) -> str:
        # The remaining presses solve the board; adding presses that together change nothing gives all other solutions.
        solutions = (self.to_press ^ nothing for nothing in _idle(self.size))
        cell = next(bits(min(solutions, key=int.bit_count)))
        return boxed(*divmod(cell, self.size))

    def sample_random_action(self) -> str:
        return boxed(*self.action_rng.integers(self.size, size=2).tolist())

    def constant_answers(self) -> list[str]:
        return [boxed(0, 0), boxed(1, 1)]


@cache
def _toggled(size: int) -> tuple[int, ...]:
    """Return, for each light, the set that a press on it toggles."""
    masks = []
    for cell in range(size**2):
        row, column = divmod(cell, size)
        near = ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        masks.append(sum(1 << r * size + c for r, c in near if 0 <= r < size and 0 <= c < size))
    return tuple(masks)


@cache
def _idle(size: int) -> tuple[int, ...]:
    """Return every set of presses that changes nothing, the empty one included."""
    # Gaussian elimination over bits: each row is the toggle of a set of presses; a set whose row becomes empty is idle.
    basis: dict[int, tuple[int, int]] = {}
    idle: list[int] = []
    for cell, lights in enumerate(_toggled(size)):
        toggled, pressed = lights, 1 << cell
        while toggled and (top := toggled.bit_length()) in basis:
            toggled, pressed = toggled ^ basis[top][0], pressed ^ basis[top][1]
        if toggled:
            basis[toggled.bit_length()] = (toggled, pressed)
        else:
            idle.append(pressed)
    return tuple(reduce(xor, chosen, 0) for count in range(len(idle) + 1) for chosen in combinations(idle, count))
