"""The judge of code. It never trusts the box: inputs go in, values come out, and they are compared here.

Three kinds of problem. ``function``: cases of arguments and an expected value. ``program``: cases of standard input and
expected standard output. ``asserts``: test code in the manner of HumanEval (``check(candidate)``); it runs in a box of its
own, against a candidate that lives in another, and only plain values pass between the two. In all three the candidate never
sees an expected value, each test is answered by a fresh process, and an exit code is no evidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from palestra.errors import UsageError
from palestra.grading.values import BadValue, Node, Tree, decode, expression, same, tree_of
from palestra.sandbox.contract import Judged, KilledBy, Sandbox, TestLine

__all__ = ["CodeJudge", "FunctionCase", "ProgramCase", "Verdict"]

_SHOWN = 200


@dataclass(frozen=True)
class FunctionCase:
    """Arguments, and what the function must return for them."""

    arguments: Sequence[Any]
    expected: Any


@dataclass(frozen=True)
class ProgramCase:
    """Standard input, and what the program must print."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class Verdict:
    """How a candidate did."""

    passed: int
    total: int
    problem: str = ""
    """The first thing that went wrong, for people; it may quote the candidate."""
    killed_by: KilledBy | None = None

    @property
    def ok(self) -> bool:
        """Whether every test was passed, of which there was at least one."""
        return 0 < self.total == self.passed

    @property
    def fraction(self) -> float:
        """The share of tests passed."""
        return self.passed / self.total if self.total else 0.0


@dataclass(frozen=True, kw_only=True)
class CodeJudge:
    """Judges candidates in boxes of ``sandbox``."""

    sandbox: Sandbox
    wall_seconds: float = 5.0
    """For each test."""
    tolerance: float = 1e-9
    """Relative, for floats."""
    lenient: bool = False
    """Expected values came from JSON, which knows no tuples: take a tuple for a list, an integer for an equal float."""
    stop_at_failure: bool = True
    """Give up at the first test that fails. Turn it off to learn the fraction passed."""
    calls_per_check: int = field(default=10_000)
    """How often test code may call the candidate."""

    async def function(self, code: str, entry: str, cases: Sequence[FunctionCase]) -> Verdict:
        """Judge the function ``entry`` of ``code``, or the method ``Class.method``."""
        tally = _Tally(len(cases))
        async with _Line(self.sandbox, b"F", code, entry) as line:
            for case in cases:
                given = _tuple_source(case.arguments)
                judged = await line.ask(given, self.wall_seconds)
                tally.count(self._value_problem(judged, tree_of(case.expected)), judged)
                if tally.problem and self.stop_at_failure:
                    break
        return tally.verdict()

    async def program(self, code: str, cases: Sequence[ProgramCase]) -> Verdict:
        """Judge ``code`` as a program that reads standard input and prints."""
        tally = _Tally(len(cases))
        async with _Line(self.sandbox, b"I", code, "") as line:
            for case in cases:
                judged = await line.ask(case.stdin.encode(), self.wall_seconds)
                tally.count(self._output_problem(judged, case.stdout), judged)
                if tally.problem and self.stop_at_failure:
                    break
        return tally.verdict()

    async def asserts(self, code: str, entry: str, tests: str, helpers: str = "") -> Verdict:
        """Judge the function ``entry`` of ``code`` by the function ``check(candidate)`` of ``tests``.

        ``tests`` and ``helpers`` (definitions the tests rely on) are the data set's, not the model's.
        """
        fields = [tests.encode(), helpers.encode(), entry.encode()]
        async with await self.sandbox.open_tests(b"T", fields) as tester, _Line(self.sandbox, b"F", code, entry) as line:
            reply: bytes | None = None
            for _ in range(self.calls_per_check):
                said = await tester.ask(reply, wall_seconds=self.wall_seconds)
                if said.frame is None or said.frame[:1] != b"C":
                    return _check_verdict(said)
                reply = await self._relay(line, said.frame[1:])
        return Verdict(0, 1, f"the tests called the candidate more than {self.calls_per_check} times")

    async def _relay(self, line: "_Line", arguments: bytes) -> bytes:
        judged = await line.ask(expression(decode(arguments)).encode(), self.wall_seconds)
        try:
            return b"V" + expression(_value(judged)).encode("utf-8", "surrogatepass")
        except BadValue as error:
            return b"X" + str(error).encode(errors="replace")[:_SHOWN]

    def _value_problem(self, judged: Judged, expected: Tree) -> str:
        try:
            got = _value(judged)
        except BadValue as error:
            return str(error)
        if same(expected, got, tolerance=self.tolerance, lenient=self.lenient):
            return ""
        return f"returned {expression(got)[:_SHOWN]}, which is not what was expected"

    def _output_problem(self, judged: Judged, expected: str) -> str:
        if judged.frame is None or judged.frame[:1] != b"V":
            return _why(judged)
        got = judged.frame[1:].decode(errors="replace")
        if same_output(expected, got, self.tolerance):
            return ""
        return f"printed {got[:_SHOWN]!r}, which is not what was expected"


class _Line:
    """A candidate in a box. A box that was killed is replaced for the next test."""

    def __init__(self, sandbox: Sandbox, kind: bytes, code: str, entry: str) -> None:
        if entry and not all(part.isidentifier() for part in entry.split(".")):
            raise UsageError(f"{entry!r} is not the name of a function")
        self._sandbox = sandbox
        self._kind = kind
        self._fields = [code.encode(errors="replace"), entry.encode()]
        self._line: TestLine | None = None

    async def __aenter__(self) -> "_Line":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._drop()

    async def ask(self, given: bytes, wall_seconds: float) -> Judged:
        if self._line is None:
            self._line = await self._sandbox.open_tests(self._kind, self._fields)
        judged = await self._line.ask(given, wall_seconds=wall_seconds)
        if judged.frame is None:
            await self._drop()
        return judged

    async def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()


class _Tally:
    """Counts tests as they are judged."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.passed = 0
        self.problem = ""
        self.killed_by: KilledBy | None = None

    def count(self, problem: str, judged: Judged) -> None:
        if not problem:
            self.passed += 1
        elif not self.problem:
            self.problem, self.killed_by = problem, judged.killed_by

    def verdict(self) -> Verdict:
        return Verdict(self.passed, self.total, self.problem, self.killed_by)


def same_output(expected: str, got: str, tolerance: float) -> bool:
    """Whether two outputs agree, line by line and word by word; blank lines at the end and spaces around words do not count."""
    wanted, printed = ([line.split() for line in text.rstrip().splitlines()] for text in (expected, got))
    if [len(line) for line in wanted] != [len(line) for line in printed]:
        return False
    pairs = ((a, b) for left, right in zip(wanted, printed, strict=True) for a, b in zip(left, right, strict=True))
    return all(a == b or _same_number(a, b, tolerance) for a, b in pairs)


def _same_number(expected: str, got: str, tolerance: float) -> bool:
    # Only where the answer is written as a decimal: integers and words are compared to the letter.
    if not any(mark in expected for mark in ".eE") or len(expected) > 64 or len(got) > 64:
        return False
    try:
        return same(float(expected), float(got), tolerance=tolerance)
    except ValueError:
        return False


def _value(judged: Judged) -> Tree:
    if judged.frame is None or judged.frame[:1] != b"V":
        raise BadValue(_why(judged))
    return decode(judged.frame[1:])


def _why(judged: Judged) -> str:
    if judged.killed_by is not None:
        return f"killed: {judged.killed_by}"
    said = judged.problem if judged.frame is None else judged.frame[1:].decode(errors="replace")
    return said[:_SHOWN] or "no answer"


def _check_verdict(said: Judged) -> Verdict:
    passed = said.frame == b"G"
    return Verdict(int(passed), 1, "" if passed else _why(said), said.killed_by)


def _tuple_source(arguments: Sequence[Any]) -> bytes:
    return expression(Node("tuple", [tree_of(argument) for argument in arguments])).encode("utf-8", "surrogatepass")
