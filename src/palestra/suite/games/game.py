r"""What all language games share: the protocol around a move.

The last ``\boxed{…}`` of the model's text is its move. A text without a readable move ends the episode with ``FORMAT_ERROR``.
A readable but illegal move only costs a turn. Solving the game pays 1, unless the game pays in parts along the way. Running out
of turns truncates the episode (never terminates it) and may pay a consolation.

A game defines four methods: how it starts (``begin``), its rules (``rules``), how to parse a move (``read``) and what a move
does (``play``). A game with a board also draws it (``view``): the board follows the rules and the answer to every move. The
whole state of an episode is in plain attributes set by ``begin``, so ``fork`` is a deep copy; constant tables belong to the
module.

A game's ``floor`` is the score of the best constant answer: the same text at every turn, averaged over the tasks of the level.
Games without an exact value name ``constant_answers`` to try, and the floor is measured.
"""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from palestra.authoring.picture import Row, drawn_html, rows_of
from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.grading import last_boxed
from palestra.trajectory import StopReason, Task

__all__ = ["FORMAT_ERROR", "Game", "MoveOutcome", "boxed", "require", "whole_number", "whole_numbers"]

FORMAT_ERROR = -0.1
"""The reward of a text without a readable move."""

_FLOOR_TASKS = 100
"""Number of tasks over which a measured floor is averaged."""

_MOST_DIGITS = 18
"""Most digits of a number: longer ones have no meaning in any game, and some would take long to parse."""

_new = tuple.__new__
"""Creates a ``Step`` in half the time of calling the named tuple; nearly every step uses it."""

Move = TypeVar("Move")
Item = TypeVar("Item")


def boxed(*parts: object) -> str:
    r"""Return ``parts``, separated by spaces, as a move: ``\boxed{1 2 3}``."""
    return f"\\boxed{{{' '.join(map(str, parts))}}}"


def whole_number(text: str) -> int | None:
    """Return the number that ``text`` spells in plain digits, or ``None``: no sign, only ASCII digits, at most 18."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def whole_numbers(text: str) -> tuple[int, ...] | None:
    """Return the numbers in ``text``, separated by spaces or commas; ``None`` if there are none or there is other text."""
    parts = text.replace(",", " ").split()
    digits = "".join(parts)
    if not (digits.isascii() and digits.isdecimal()) or (len(digits) > _MOST_DIGITS < max(map(len, parts))):
        return None
    return tuple(map(int, parts))


def require(condition: bool, message: str) -> None:
    """Raise ``UsageError`` with ``message`` unless ``condition`` holds for the parameters of a game."""
    if not condition:
        raise UsageError(message)


class MoveOutcome(msgspec.Struct, frozen=True):
    """The result of a move."""

    text: str
    """What the player reads."""
    reward: float = 0.0
    solved: bool = False
    over: bool = False
    """The game ended by its rules without being solved: a mine, a lost or drawn duel."""


class Game(Env, Generic[Move]):
    r"""A game played by ``\boxed{…}`` moves under a turn limit."""

    reward_range = (FORMAT_ERROR, 1.0)
    score_range = (FORMAT_ERROR, 1.0)
    counts_turns = True

    max_turns: int
    """The turn limit of the current episode."""
    turn: int
    """Number of moves made."""

    @abstractmethod
    def begin(self) -> None:
        """Draw the start state from ``self.rng`` and set ``self.max_turns``."""

    @abstractmethod
    def rules(self) -> str:
        """Return the first observation: the rules, the start state, and how to write a move."""

    @abstractmethod
    def read(self, answer: str) -> Move | None:
        r"""Return the move that the content of ``\boxed{…}`` means, or ``None`` if it is not a move."""

    @abstractmethod
    def play(self, move: Move) -> MoveOutcome:
        """Make ``move``, legal or not."""

    def view(self) -> str:
        """Return the board as the player may see it; empty for a game without one."""
        return ""

    def picture(self) -> Sequence[Row]:
        """Return the board in rows of tiles, as the player may see it; by default it is derived from ``view``."""
        return rows_of(self.view())

    def render(self) -> str:
        """Return the current state as HTML for people: everything is escaped, and nothing in it runs or loads."""
        return drawn_html(self.picture())

    def constant_answers(self) -> Sequence[str]:
        """Return moves that may score something if made blindly at every turn."""
        return ()

    @property
    def floor(self) -> float:
        totals = [0.0]
        for answer in self.constant_answers():
            twin = copy.copy(self)
            totals.append(sum(_score_of(twin, answer, seed) for seed in range(_FLOOR_TASKS)) / _FLOOR_TASKS)
        return max(totals)

    def consolation(self, move: Move, outcome: MoveOutcome) -> float:
        """Return the reward of the move that used up the last turn; by default that of the move itself."""
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
            text = f"At turn {self.turn}, you did not give a valid move in \\boxed{{}}. The game is over."
            return Step(text, FORMAT_ERROR, True, False, {"success": False, "format_error": True})
        outcome = self.play(move)
        if outcome.solved or outcome.over:
            return Step(self._with_view(outcome.text), outcome.reward, True, False, {"success": outcome.solved})
        if self.turn >= self.max_turns:
            text = self._with_view(f"{outcome.text}\nYou have used all {self.max_turns} turns. The game is over.")
            info = {"success": False, "stop_reason": StopReason.TURN_LIMIT}
            return Step(text, self.consolation(move, outcome), False, True, info)
        return _new(Step, (self._with_view(outcome.text), outcome.reward, False, False, {}))

    def fork(self) -> "Game[Move]":
        return copy.deepcopy(self)

    def draw(self, items: Sequence[Item]) -> Item:
        """Draw one of ``items`` for this task."""
        if len(items) == 1:
            return items[0]
        # A third of the cost of integers(); the probabilities differ by less than 1 in 2**40.
        return items[int(self.rng.random() * len(items))]

    def draw_action(self, items: Sequence[Item]) -> Item:
        """Draw one of ``items`` for a random action."""
        return items[int(self.action_rng.random() * len(items))]

    def _with_view(self, text: str) -> str:
        view = self.view()
        return f"{text}\n{view}" if view else text


def _score_of(game: Game[Any], answer: str, seed: int) -> float:
    """Return the score of ``answer``, given at every turn, in the task of ``seed``."""
    game.reset(seed=seed)
    total = 0.0
    while True:
        step = game.step(answer)
        total += step.reward
        if step.terminated or step.truncated:
            return total
