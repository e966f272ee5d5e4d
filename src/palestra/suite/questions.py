r"""Questions in a file of your own, as environments: ``data:questions.jsonl?grader=number``.

Each row is one task, and one reply ends the episode. Options follow the question mark, or are keyword arguments of ``make``:

``grader``       ``exact`` (the default), ``number``, ``maths``, ``choice``, ``code``, or ``module:name`` of a function of yours
``question``     the name of the field with the question; ``question`` by default
``answer``       the name of the field with the answer; ``answer`` by default (``tests`` for the grader ``code``)
``choices``      the name of the field with the choices; ``choices`` by default
``instruction``  the text that follows the question, instead of the grader's own

The grader ``maths`` also has the options of ``Readings``: ``pairs``, ``base``, ``angles``, ``percent``, ``decimals``, ``log``.
The grader ``exact`` has ``percent`` and ``hyphens``, each ``true`` or ``false``: see ``QuestionAnswering``.
"""

import copy
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from palestra.authoring.graders import ChoiceGrader, FunctionGrader, Grader, NumberGrader
from palestra.authoring.rows import Rows
from palestra.core import AsyncEnv, Env, Step
from palestra.errors import SchemaError, Unsupported, UsageError
from palestra.foundation.references import is_reference, resolve
from palestra.grading.readings import Readings
from palestra.suite.code import Coding
from palestra.suite.data.drawing import draw_row
from palestra.suite.data.files import FileRows
from palestra.suite.maths import Maths
from palestra.suite.problems import problem_of
from palestra.suite.qa import QuestionAnswering
from palestra.trajectory import Task

__all__ = ["Questions", "open_questions", "read_questions"]

GraderChoice = str | Grader | Callable[[str, dict[str, Any]], Any]
"""The name of a grader, a grader, or a function ``(reply, row)`` that returns a bool or a number."""

_OWN: dict[str, type[Grader]] = {"number": NumberGrader, "choice": ChoiceGrader}
_READINGS: dict[GraderChoice, tuple[str, ...]] = {
    "maths": tuple(field.name for field in fields(Readings)),
    "exact": ("percent", "hyphens"),
}
"""The options that say how a grader reads an answer."""
_NAMES = ("exact", "number", "maths", "choice", "code")


def open_questions(path: str, *, grader: GraderChoice = "exact", **options: Any) -> Env | AsyncEnv:
    """Ask the questions of a file, one per episode, and grade the reply.

    The options are ``grader``, ``question``, ``answer``, ``choices`` and ``instruction``. A file that cannot be read, an
    unknown option or grader, and a broken row are errors before the first episode; the message names the line of the row.
    """
    readings = {name: _value(grader, name, options.pop(name)) for name in _readings(grader) if name in options}
    names = _options(options)
    source, graded = _source(path, grader, names)
    source.rows()
    asked = {} if names.get("instruction") is None else {"instruction": names["instruction"]}
    if isinstance(graded, Grader):
        return Questions(source, graded, **asked)
    if graded == "code":
        if asked:
            raise UsageError("the grader code has its own instruction: leave the option instruction out")
        return Coding(source)
    return (Maths if graded == "maths" else QuestionAnswering)(source, **asked, **readings)


def read_questions(path: str, *, grader: GraderChoice = "exact", **options: Any) -> Rows:
    """Return the rows of ``data:path`` with its options."""
    options = {name: value for name, value in options.items() if name not in _readings(grader)}
    return _source(path, grader, _options(options))[0].rows()


def _readings(grader: GraderChoice) -> tuple[str, ...]:
    return _READINGS.get(grader, ()) if isinstance(grader, str) else ()


def _value(grader: GraderChoice, name: str, value: Any) -> Any:
    """Return the value of an option, which an id gives as a text."""
    if grader == "maths":
        return int(value) if name == "decimals" and str(value).isdecimal() else value
    written = str(value).lower()
    if written not in ("true", "false"):
        raise UsageError(f'the option {name} of the grader {grader} is "{value}"; expected true or false')
    return written == "true"


def _options(options: dict[str, Any]) -> dict[str, Any]:
    known = ("question", "answer", "choices", "instruction")
    if unknown := [name for name in options if name not in known]:
        raise UsageError(f'data files have no option "{unknown[0]}"; there are grader, {", ".join(known)}')
    return options


def _source(path: str, grader: GraderChoice, options: dict[str, Any]) -> tuple[FileRows, Grader | str]:
    graded = _grader(grader)
    answer = str(options.get("answer", "tests" if graded == "code" else "answer"))
    question = str(options.get("question", "question"))
    fields = [("question", question), ("tests" if graded == "code" else "answer", answer)]
    optional = [("choices", str(options.get("choices", "choices")))]
    if isinstance(graded, FunctionGrader):  # which may need no answer
        optional.append(fields.pop())
    check = graded.problem if isinstance(graded, Grader) else _code_problem if graded == "code" else None
    name = graded if isinstance(graded, str) else type(graded).__qualname__
    return FileRows(path, tuple(fields), tuple(optional), check, name), graded


def _grader(grader: GraderChoice) -> Grader | str:
    if isinstance(grader, Grader):
        return grader
    if not isinstance(grader, str):
        return FunctionGrader(grader)
    if grader in _OWN:
        return _OWN[grader]()
    if grader in _NAMES:
        return grader
    if not is_reference(grader):
        raise UsageError(f'no grader is called "{grader}": write {", ".join(_NAMES)}, or module:name of a function of yours')
    found = resolve(grader)
    if isinstance(found, type):
        found = found()
    if not isinstance(found, Grader) and not callable(found):
        raise UsageError(f'the grader "{grader}" is a {type(found).__name__}; expected a function (reply, row) or a Grader')
    return found if isinstance(found, Grader) else FunctionGrader(found, grader)


def _code_problem(row: dict[str, Any]) -> str:
    try:
        problem_of(row)
    except (SchemaError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"the tests cannot be read: {error}"
    return ""


class Questions(AsyncEnv):
    """One question of a file per episode, with one reply, graded by ``grader``."""

    max_turns = 1

    def __init__(self, source: FileRows, grader: Grader, instruction: str | None = None) -> None:
        self._source = source
        self._grader = grader
        self._instruction = grader.instruction if instruction is None else f"\n\n{instruction}" if instruction else ""

    @property
    def floor(self) -> float:
        return self._grader.floor(self._source.rows().rows)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        drawn = draw_row(self._source, "", self.task, self.rng)
        self._row = drawn.row
        return f"{self._grader.question(self._row)}{self._instruction}", {"data": drawn.provenance}

    async def step(self, action: str) -> Step:
        grade = await self._grader.grade(action, self._row)
        info: dict[str, Any] = {"success": grade.success}
        if grade.format_error:
            info["format_error"] = True
        told = "There is no answer in your reply." if grade.format_error else ""
        return Step(told, grade.reward, True, False, info)

    async def oracle(self) -> str:
        return self._solution(self._row)

    async def sample_random_action(self) -> str:
        """Return the answer to another question."""
        rows = self._source.rows()
        return self._solution(rows[int(self.action_rng.integers(len(rows)))])

    async def fork(self) -> "Questions":
        shared = {id(one): one for one in (self._source, self._grader)}  # a grader of the user may hold a model
        return copy.deepcopy(self, shared)

    def _solution(self, row: dict[str, Any]) -> str:
        solution = self._grader.solution(row)
        if solution is None:
            raise Unsupported(f"{self._source} has no answers, so there is no oracle")
        return solution
