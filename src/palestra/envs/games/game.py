r"""What all language games share: the protocol around a move.

The last ``\boxed{…}`` of the model's text is its move. A text without a readable move ends the episode at ``FORMAT_ERROR``;
a readable but illegal move costs a turn and nothing else; solving the game is worth 1, unless the game pays in parts along the
way. Running out of turns truncates the episode (never terminates it) and may pay a consolation.

A game says four things: how it begins (``begin``), what the rules are (``rules``), how to read a move (``read``) and what
a move does (``play``). One with a board also draws it (``view``): the board stands below the rules and below the answer to
every move. Everything about one episode lives in plain attributes set by ``begin``, so ``fork`` is a deep copy; tables that
never change live in modules.

A game's ``floor`` is what the best constant answer scores: the same text at every turn, averaged over the tasks of the level.
Games that cannot say it exactly name ``constant_answers`` worth trying and have it measured.
"""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from palestra.core import Env, Step
from palestra.envs.games.picture import Row, drawn_html, rows_of
from palestra.errors import UsageError
from palestra.grading import last_boxed
from palestra.trajectory import StopReason, Task

__all__ = ["FORMAT_ERROR", "Game", "Outcome", "boxed", "require", "whole_number", "whole_numbers"]

FORMAT_ERROR = -0.1
"""The reward of a text that holds no readable move."""

_FLOOR_TASKS = 100
"""How many tasks a measured floor is averaged over."""

_MOST_DIGITS = 18
"""Longer numbers mean nothing in any game, and some would cost much to read."""

_new = tuple.__new__
"""Half of what calling a named tuple costs; nearly every step comes this way."""

Move = TypeVar("Move")
Item = TypeVar("Item")


def boxed(*parts: object) -> str:
    r"""``parts``, separated by spaces, as a move: ``\boxed{1 2 3}``."""
    return f"\\boxed{{{' '.join(map(str, parts))}}}"


def whole_number(text: str) -> int | None:
    """The number that ``text`` spells in plain digits, or ``None``: no sign, no other alphabet, at most 18 digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def whole_numbers(text: str) -> tuple[int, ...] | None:
    """The numbers in ``text``, separated by spaces or commas; ``None`` if there are none or anything else stands there."""
    parts = text.replace(",", " ").split()
    digits = "".join(parts)
    if not (digits.isascii() and digits.isdecimal()) or (len(digits) > _MOST_DIGITS < max(map(len, parts))):
        return None
    return tuple(map(int, parts))


def require(condition: bool, message: str) -> None:
    """Refuse parameters of a game that make no game."""
    if not condition:
        raise UsageError(message)


class Outcome(msgspec.Struct, frozen=True):
    """What a move did."""

    text: str
    """What to tell the player."""
    reward: float = 0.0
    solved: bool = False
    over: bool = False
    """The game ended by its own rules and is not solved: a mine, a lost or drawn duel."""


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

    def view(self) -> str:
        """The board as the player may see it; empty for a game without one."""
        return ""

    def picture(self) -> Sequence[Row]:
        """The board in rows of tiles, as the player may see it; read off ``view`` unless the game says otherwise."""
        return rows_of(self.view())

    def render(self) -> str:
        """The present state as a piece of HTML, for people: everything escaped, nothing that runs or loads."""
        return drawn_html(self.picture())

    def constant_answers(self) -> Sequence[str]:
        """Moves that may be worth something when made blindly at every turn."""
        return ()

    @property
    def floor(self) -> float:
        totals = [0.0]
        for answer in self.constant_answers():
            twin = copy.copy(self)
            totals.append(sum(_score_of(twin, answer, seed) for seed in range(_FLOOR_TASKS)) / _FLOOR_TASKS)
        return max(totals)

    def consolation(self, move: Move, outcome: Outcome) -> float:
        """The reward of the move that used up the last turn; that of the move itself unless the game says otherwise."""
        return outcome.reward

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        self.begin()
        return self._with_view(self.rules()), {"max_turns": self.max_turns}

    def step(self, action: str) -> Step:
        self.turn += 1
        answer = last_boxed(action)
        move = None if answer is None else self.read(answer)
        if move is None:
            told = f"At turn {self.turn}, you did not give a valid move in \\boxed{{}}. The game is over."
            return Step(told, FORMAT_ERROR, True, False, {"success": False, "format_error": True})
        outcome = self.play(move)
        if outcome.solved or outcome.over:
            return Step(self._with_view(outcome.text), outcome.reward, True, False, {"success": outcome.solved})
        if self.turn >= self.max_turns:
            told = self._with_view(f"{outcome.text}\nYou have used all {self.max_turns} turns. The game is over.")
            info = {"success": False, "stop_reason": StopReason.TURN_LIMIT}
            return Step(told, self.consolation(move, outcome), False, True, info)
        return _new(Step, (self._with_view(outcome.text), outcome.reward, False, False, {}))

    def fork(self) -> "Game[Move]":
        return copy.deepcopy(self)

    def draw(self, items: Sequence[Item]) -> Item:
        """One of ``items``, drawn for this task."""
        if len(items) == 1:
            return items[0]
        # A third of the cost of integers(); the chances differ by less than 1 in 2**40.
        return items[int(self.rng.random() * len(items))]

    def draw_action(self, items: Sequence[Item]) -> Item:
        """One of ``items``, drawn for a random action."""
        return items[int(self.action_rng.random() * len(items))]

    def _with_view(self, text: str) -> str:
        view = self.view()
        return f"{text}\n{view}" if view else text


def _score_of(game: Game[Any], answer: str, seed: int) -> float:
    """What ``answer`` earns in the task of ``seed`` when it is given at every turn."""
    game.reset(seed=seed)
    total = 0.0
    while True:
        step = game.step(answer)
        total += step.reward
        if step.terminated or step.truncated:
            return total
