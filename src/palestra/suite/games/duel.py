"""Board games against a scripted opponent.

The opponent moves within the player's turn. With probability ``skill`` it plays well, otherwise at random, from the generator
of the task. Each task draws which side begins. A win pays 1, a draw 0.5 and a loss 0; only a win is a success.
"""

from abc import abstractmethod
from typing import ClassVar

from palestra.suite.games.game import Game, MoveOutcome, boxed, require, whole_number

__all__ = ["SKILLS", "Duel"]

SKILLS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The skills from which the random level draws one."""


class Duel(Game[int]):
    """A move is one number. ``mine`` and ``theirs`` are the cells of the player (X) and the opponent (O), one bit per cell."""

    most_turns: ClassVar[int]
    """The turn limit; only impossible moves can use it up."""

    mine: int
    theirs: int

    def __init__(self, skill: float | None) -> None:
        require(skill is None or 0.0 <= skill <= 1.0, f"skill must be 0 to 1, got {skill}")
        self._skills = SKILLS if skill is None else (skill,)

    @abstractmethod
    def legal(self) -> list[int]:
        """Return the moves that can be made now, as the player writes them."""

    @abstractmethod
    def cell(self, move: int) -> int:
        """Return the cell that a legal ``move`` takes."""

    @abstractmethod
    def won(self, cells: int) -> bool:
        """Return whether ``cells`` contain a winning line."""

    @abstractmethod
    def good_replies(self) -> list[int]:
        """Return the moves that the opponent chooses from when it plays well."""

    def begin(self) -> None:
        self.skill = self.draw(self._skills)
        self.mine = self.theirs = 0
        self.begins = bool(self.rng.integers(2))
        self.max_turns = self.most_turns
        if not self.begins:
            self._reply()

    def read(self, answer: str) -> int | None:
        return whole_number(answer)

    def play(self, move: int) -> MoveOutcome:
        if move not in self.legal():
            return MoveOutcome(f"At turn {self.turn}, you chose {move}, which is not possible.")
        self.mine |= 1 << self.cell(move)
        said = f"At turn {self.turn}, you chose {move}"
        if self.won(self.mine):
            return MoveOutcome(f"{said} and have won. Well done!", 1.0, solved=True)
        if self.legal():
            said += f", and the opponent answered {self._reply()}"
        if self.won(self.theirs):
            return MoveOutcome(f"{said} and has won.", over=True)
        if not self.legal():
            return MoveOutcome(f"{said}. The board is full: a draw.", 0.5, over=True)
        return MoveOutcome(f"{said}.")

    def _reply(self) -> int:
        clever = self.rng.random() < self.skill
        move = self.draw(self.good_replies() if clever else self.legal())
        self.theirs |= 1 << self.cell(move)
        return move

    def mark(self, cell: int, empty: str) -> str:
        """Return the mark of ``cell``."""
        return "X" if self.mine >> cell & 1 else "O" if self.theirs >> cell & 1 else empty

    def sample_random_action(self) -> str:
        return boxed(self.draw_action(self.legal()))
