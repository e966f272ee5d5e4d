r"""What all language games share: the protocol around a move.

The last ``\boxed{…}`` of the model's text is its move. A text without a readable move ends the episode at ``FORMAT_ERROR``;
a readable but illegal move costs a turn and nothing else; solving the game is worth 1, unless the game pays in parts along the
way. Running out of turns truncates the episode (never terminates it) and may pay a consolation.

A game says four things: how it begins (``begin``), what the rules are (``rules``), how to read a move (``read``) and what
a move does (``play``). Everything about one episode lives in plain attributes set by ``begin``, so ``fork`` is a deep copy.
"""

import copy
from abc import abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

from palestra.core import Env, Step
from palestra.grading import last_boxed
from palestra.trajectory import StopReason, Task

__all__ = ["FORMAT_ERROR", "Game", "Outcome"]

FORMAT_ERROR = -0.1
"""The reward of a text that holds no readable move."""

Move = TypeVar("Move")


class Outcome(NamedTuple):
    """What a move did."""

    text: str
    """What to tell the player."""
    reward: float = 0.0
    solved: bool = False
    over: bool = False
    """The game was lost by its own rules (a mine, a hanged man)."""


class Game(Env, Generic[Move]):
    r"""A game played by ``\boxed{…}`` moves under a turn limit."""

    reward_range = (FORMAT_ERROR, 1.0)

    max_turns: int
    """The turn limit of the present episode."""
    turn: int
    """How many moves were made."""

    @abstractmethod
    def begin(self) -> None:
        """Draw the start state from ``self.rng`` and set ``self.max_turns``."""

    @abstractmethod
    def rules(self) -> str:
        """The first observation: the rules, the start state, and how to write a move."""

    @abstractmethod
    def read(self, answer: str) -> Move | None:
        r"""The move that the content of ``\boxed{…}`` means, or ``None`` if it means none."""

    @abstractmethod
    def play(self, move: Move) -> Outcome:
        """Make ``move``, legal or not."""

    def consolation(self, move: Move, outcome: Outcome) -> float:
        """The reward of the move that used up the last turn; that of the move itself unless the game says otherwise."""
        return outcome.reward

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        self.begin()
        return self.rules(), {"max_turns": self.max_turns}

    def step(self, action: str) -> Step:
        self.turn += 1
        answer = last_boxed(action)
        move = None if answer is None else self.read(answer)
        if move is None:
            told = f"At turn {self.turn}, you did not give a valid move in \\boxed{{}}. The game is over."
            return Step(told, FORMAT_ERROR, True, False, {"success": False, "format_error": True})
        outcome = self.play(move)
        if outcome.solved or outcome.over:
            return Step(outcome.text, outcome.reward, True, False, {"success": outcome.solved})
        if self.turn >= self.max_turns:
            told = f"{outcome.text}\nYou have used all {self.max_turns} turns. The game is over."
            info = {"success": False, "stop_reason": StopReason.TURN_LIMIT}
            return Step(told, self.consolation(move, outcome), False, True, info)
        return Step(outcome.text, outcome.reward, False, False, {})

    def fork(self) -> "Game[Move]":
        return copy.deepcopy(self)
