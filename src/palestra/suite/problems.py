"""Programming problems: a text, public tests that the text shows, and hidden tests.

Three shapes are read. A *completion* (HumanEval) has a signature, a docstring and a ``check`` function. A *program* has pairs
of input and output; the first two are public. A *function* has arguments and results under the name ``fn_name``.
"""

import ast
import doctest
import re
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from palestra.errors import SchemaError
from palestra.grading.code import CodeJudge, CodeVerdict, FunctionCase, ProgramCase

__all__ = ["Problem", "problem_of"]

_CLOSING = re.compile("\"\"\"|'''")
"""The end of a docstring. The last example of a docstring includes it."""
PUBLIC = 2
"""Tests that are shown if the problem does not say which."""
_SHOWN = 400
"""Characters of a test that are quoted."""


class Problem(ABC):
    """A programming problem with its tests."""

    text: str
    """What the agent reads."""
    solution: str | None = None
    """A right answer, where the data set has one."""

    @abstractmethod
    async def hidden(self, judge: CodeJudge, code: str) -> CodeVerdict:
        """Judge ``code`` by the hidden tests."""

    @abstractmethod
    async def public(self, judge: CodeJudge, code: str) -> str:
        """Return the results of ``code`` on the public tests as text; empty if there are none."""

    @abstractmethod
    def guess(self, number: int) -> str:
        """Return a program of the right form that always answers ``number``."""


def problem_of(row: dict[str, Any]) -> Problem:
    """Return the problem in a row of a data set."""
    if "entry" in row:
        return CompletionProblem(row)
    tests = row["tests"]
    if isinstance(tests, str):
        tests = msgspec.json.decode(tests)
    if isinstance(tests, list):
        tests = {"inputs": [test["input"] for test in tests], "outputs": [test["output"] for test in tests]}
    pairs = list(zip(tests.get("inputs") or (), tests.get("outputs") or (), strict=True))
    if not pairs:
        raise SchemaError(f"a problem without tests: {str(row['question'])[:60]!r}")
    text, name = str(row["question"]).strip(), tests.get("fn_name")
    return Function(text, name, pairs) if name else ProgrammingProblem(text, pairs)


class CompletionProblem(Problem):
    """A function to complete, judged by test code."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._prompt, self._entry, self._tests = row["prompt"], row["entry"], row["tests"]
        self.text = f"Complete this function.\n\n```python\n{self._prompt.rstrip()}\n```"
        self.solution = self._prompt + row["solution"]
        self._examples = list(_examples(self._prompt, self._entry))

    def _whole(self, code: str) -> str:
        """``code`` below the imports and helpers of the prompt; below all of it, if it is only a body."""
        start = self._prompt.find(f"def {self._entry}")
        return f"{self._prompt[:start] if f'def {self._entry}' in code else self._prompt}\n{code}"

    async def hidden(self, judge: CodeJudge, code: str) -> CodeVerdict:
        return await judge.asserts(self._whole(code), self._entry, self._tests, self._prompt)

    async def public(self, judge: CodeJudge, code: str) -> str:
        told = []
        for source, arguments, expected in self._examples:
            verdict = await judge.function(self._whole(code), self._entry, [FunctionCase(arguments, expected)])
            told.append(_told(source, verdict))
        return "\n".join(told)

    def guess(self, number: int) -> str:
        return f"def {self._entry}(*arguments):\n    return {number}"


class ProgrammingProblem(Problem):
    """A program that reads standard input and prints."""

    def __init__(self, text: str, pairs: list[tuple[Any, Any]]) -> None:
        cases = [ProgramCase(_lines(given), _lines(expected)) for given, expected in pairs]
        self._cases, self._shown = cases, cases[: min(PUBLIC, len(cases) - 1)]
        self.text = text + "".join(f"\n\nInput:\n{case.stdin}\nOutput:\n{case.stdout}" for case in self._shown)

    async def hidden(self, judge: CodeJudge, code: str) -> CodeVerdict:
        return await judge.program(code, self._cases)

    async def public(self, judge: CodeJudge, code: str) -> str:
        return "\n".join([_told(f"input {case.stdin!r}", await judge.program(code, [case])) for case in self._shown])

    def guess(self, number: int) -> str:
        return f"print({number})"


class Function(Problem):
    """A function, given by name, that is called with arguments."""

    def __init__(self, text: str, name: str, pairs: list[tuple[Any, Any]]) -> None:
        self._name = name
        cases = [FunctionCase(list(given) if isinstance(given, list) else [given], expected) for given, expected in pairs]
        self._cases, self._shown = cases, cases[: min(PUBLIC, len(cases) - 1)]
        shown = "".join(f"\n\n{_call(name, case.arguments)} returns {case.expected!r}" for case in self._shown)
        self.text = f"{text}\n\nWrite the function {name}.{shown}"

    async def hidden(self, judge: CodeJudge, code: str) -> CodeVerdict:
        return await judge.function(code, self._name, self._cases)

    async def public(self, judge: CodeJudge, code: str) -> str:
        told = []
        for case in self._shown:
            told.append(_told(_call(self._name, case.arguments), await judge.function(code, self._name, [case])))
        return "\n".join(told)

    def guess(self, number: int) -> str:
        return f"def {self._name.rpartition('.')[2]}(*arguments):\n    return {number}"


def _told(test: str, verdict: CodeVerdict) -> str:
    result = "passed" if verdict.ok else f"failed: {verdict.problem}"
    return f"{test[:_SHOWN]}: {result}"


def _call(name: str, arguments: Any) -> str:
    return f"{name}({', '.join(map(repr, arguments))})"


def _lines(text: Any) -> str:
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _examples(prompt: str, entry: str) -> Any:
    """The examples of the docstring that are plain calls with plain results: source, arguments, result."""
    try:
        found = doctest.DocTestParser().get_examples(prompt)
    except ValueError:
        return
    for example in found:
        try:
            call = ast.parse(example.source.strip(), mode="eval").body
            if not (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry and not call.keywords
            ):
                continue
            arguments = [ast.literal_eval(argument) for argument in call.args]
            yield example.source.strip(), arguments, ast.literal_eval(_CLOSING.split(example.want)[0].strip())
        except (SyntaxError, ValueError):
            continue
