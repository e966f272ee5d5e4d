"""Graders for questions of your own: a number, a choice, or any function of yours.

A grader reads the model's reply and the row of the question and returns a ``Grade``. ``exact``, ``maths`` and ``code`` are
environments of their own (``qa``, ``maths`` and ``code``); see ``questions`` for how a name becomes one of them.
"""

import asyncio
import copy
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from palestra.errors import EpisodeError, GraderError
from palestra.grading import last_answer, last_boxed
from palestra.grading.text import normalize, too_long

__all__ = ["ChoiceGrader", "FunctionGrader", "Grade", "Grader", "NumberGrader", "number_in"]

Row = dict[str, Any]
"""A row under our names: ``question``, ``answer``, ``choices``, and ``row``, which is the row as it stands in the file."""


class Grade(NamedTuple):
    """The result of grading a reply."""

    reward: float
    success: bool | None
    format_error: bool = False
    """The reply contains nothing that could be an answer."""


class Grader(ABC):
    """Grades replies to questions of a file."""

    instruction: str = ""
    """Follows the question, unless the user passes another instruction."""

    def problem(self, row: Row) -> str:
        """Return what is wrong with ``row``, or an empty string."""
        return ""

    def question(self, row: Row) -> str:
        """Return the question as the model sees it."""
        return str(row["question"]).strip()

    @abstractmethod
    async def grade(self, reply: str, row: Row) -> Grade:
        """Grade ``reply``."""

    def solution(self, row: Row) -> str | None:
        """Return a reply that is right, or ``None`` if the row does not hold one."""
        return None if row.get("answer") in (None, "") else f"\\boxed{{{row['answer']}}}"

    def floor(self, rows: tuple[Row, ...]) -> float:
        """Return what a player who never reads the question scores on average."""
        return 0.0


# ------------------------------------------------------------------------------------------------------------------ numbers

_WHOLE = r"(?:\d{1,3}(?:,\d{2,3}){0,9},\d{3}(?!\d)|\d+)"
"""Digits, with commas if three digits follow the last one: 1,234 is one number, and 1,2 is two."""
_NUMBER = re.compile(rf"[-+−]?(?:{_WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}})?(?:\s*/\s*(?=[1-9]){_WHOLE})?")
_TOLERANCE = Fraction(1, 1_000_000)
_ROUNDING = Fraction(5, 1_000_000)
"""The largest error of a number that is rounded to six digits, as a share of it."""
_LONGEST = 1000
"""Characters of a number; a longer one is not read."""


def number_in(text: str) -> Fraction | None:
    """Return the last number in ``text``: ``42``, ``-1,234.5``, ``1e6``, ``3/4``; ``None`` if there is none."""
    numbers = _NUMBER.findall(text)
    if not numbers or len(numbers[-1]) > _LONGEST:
        return None
    above, _, below = numbers[-1].replace(",", "").replace("−", "-").partition("/")
    return Fraction(above.strip()) / Fraction(below.strip() or 1)


class NumberGrader(Grader):
    """The reply's number must equal the answer's, to six digits.

    The number in the last box counts, or the last number of the reply if there is no box. The answer may contain words, as in
    GSM8K (``… #### 42``): its last number counts.
    """

    instruction = "\n\nReason step by step, and put the final number into \\boxed{}."

    def problem(self, row: Row) -> str:
        if number_in(str(row["answer"])) is None:
            return f"the grader number needs a number as the answer, got {str(row['answer'])[:60]!r}"
        return ""

    async def grade(self, reply: str, row: Row) -> Grade:
        boxed = last_boxed(reply)
        stated, meant = number_in(reply if boxed is None else boxed), number_in(str(row["answer"]))
        assert meant is not None
        if stated is None:
            return Grade(0.0, False, format_error=True)
        right = abs(stated - meant) <= min(_TOLERANCE * max(Fraction(1), abs(meant)), _ROUNDING * abs(meant))
        return Grade(float(right), right)

    def solution(self, row: Row) -> str | None:
        number = number_in(str(row["answer"]))
        assert number is not None
        return f"\\boxed{{{number}}}"


# ------------------------------------------------------------------------------------------------------------------ choices

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ChoiceGrader(Grader):
    """The reply must name the right choice, by its letter or its text.

    ``choices`` of a row is a list, or a JSON list in a text. Without it, the question contains the choices, and the answer is a
    letter. The answer is a letter, a position that starts at 0, or the text of a choice.
    """

    instruction = "\n\nPut the letter of your choice into \\boxed{}."

    def problem(self, row: Row) -> str:
        try:
            choices = _choices(row)
        except ValueError as error:
            return str(error)
        if _letter(row["answer"], choices) is None:
            expected = (
                f"a letter up to {_LETTERS[len(choices) - 1]}, a position or one of the choices" if choices else "a letter"
            )
            return f"the grader choice needs {expected} as the answer, got {str(row['answer'])[:60]!r}"
        return ""

    def question(self, row: Row) -> str:
        shown = [f"{letter}. {choice}" for letter, choice in zip(_LETTERS, _choices(row), strict=False)]
        return "\n".join([super().question(row), *shown])

    async def grade(self, reply: str, row: Row) -> Grade:
        stated = last_boxed(reply)
        stated = last_answer(reply) if stated is None else stated
        if stated is None and len(reply.strip(" .()\n")) == 1:
            stated = reply
        choices = _choices(row)
        letter = None if stated is None else _bare_letter(stated, choices) or _letter(stated, choices)
        if letter is None:
            return Grade(0.0, False, format_error=stated is None)
        right = letter == _letter(row["answer"], choices)
        return Grade(float(right), right)

    def solution(self, row: Row) -> str | None:
        return f"\\boxed{{{_letter(row['answer'], _choices(row))}}}"

    def floor(self, rows: tuple[Row, ...]) -> float:
        counts: dict[str | None, int] = {}
        for row in rows:
            letter = _letter(row["answer"], _choices(row))
            counts[letter] = counts.get(letter, 0) + 1
        return max(counts.values()) / len(rows)


def _choices(row: Row) -> list[str]:
    choices = row.get("choices")
    if choices in (None, ""):
        return []
    if isinstance(choices, str):
        try:
            choices = msgspec.json.decode(choices, type=list)
        except msgspec.DecodeError:
            raise ValueError(f"the choices must be a list, or a JSON list in a text, got {choices[:60]!r}") from None
    if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= len(_LETTERS):
        raise ValueError(f"a question needs a list of 2 to {len(_LETTERS)} choices, got {str(choices)[:60]!r}")
    return [str(choice).strip() for choice in choices]


def _letter(answer: Any, choices: list[str]) -> str | None:
    """Return the letter that ``answer`` means: itself, a position, or the text of a choice."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        return _LETTERS[answer] if 0 <= answer < len(choices) else None
    text = str(answer).strip()
    if too_long(text, choices):
        return None
    normalized = normalize(text)
    for position, choice in enumerate(choices):
        if normalize(choice) == normalized:
            return _LETTERS[position]
    if text.isdecimal() and len(text) <= 2 and int(text) < len(choices):
        return _LETTERS[int(text)]
    return _bare_letter(text, choices)


def _bare_letter(text: str, choices: list[str]) -> str | None:
    """Return the letter that ``text`` consists of, or ``None``. It comes first in a reply: the instruction asks for it."""
    letter = text.strip(" .():\n").upper()
    return letter if len(letter) == 1 and letter in _LETTERS[: len(choices) or len(_LETTERS)] else None


# ---------------------------------------------------------------------------------------------------------------- functions


class FunctionGrader(Grader):
    """A function of yours, plain or async: ``grade(reply, row)`` returns whether the reply is right, or a reward.

    ``reply`` is all that the model wrote, ``row`` the row of the file. A number counts as solved if it is at least 1. With
    ``in_thread``, a function that waits, for example for a model, blocks no other episode.
    """

    def __init__(self, function: Callable[[str, Row], Any], name: str = "", *, in_thread: bool = False) -> None:
        self._function = function
        self._in_thread = in_thread
        self.name = name or getattr(function, "__name__", type(function).__name__)

    async def grade(self, reply: str, row: Row) -> Grade:
        try:
            given = reply, copy.deepcopy(row["row"])  # all episodes share the rows of a file
            result = await asyncio.to_thread(self._function, *given) if self._in_thread else self._function(*given)
            if inspect.isawaitable(result):
                result = await result
        except EpisodeError:
            raise
        except Exception as error:
            raise GraderError(f"the grader {self.name} failed: {type(error).__name__}: {error}") from error
        if isinstance(result, bool):
            return Grade(float(result), result)
        try:
            reward = float(result)
        except (TypeError, ValueError):
            raise GraderError(f"the grader {self.name} returned {result!r:.80}; expected a bool or a number") from None
        return Grade(reward, reward >= 1.0)

    def solution(self, row: Row) -> str | None:
        return None if row.get("answer") in (None, "") else str(row["answer"])
