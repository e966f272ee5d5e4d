"""Judge code. The judge never trusts the box: inputs go in, values come out, and the host compares them.

There are three kinds of problem. ``function``: cases of arguments and an expected value. ``program``: cases of standard input
and expected standard output. ``asserts``: test code in the style of HumanEval (``check(candidate)``), which runs in its own box
against a candidate in another box; only plain values pass between the two. In all three the candidate never sees an
expected value, a fresh process answers each test, and an exit code is not evidence.

As far as plain values go, test code sees what it would see of a candidate in its own process: keywords, built-in exceptions
and, after a call that returned ``None``, the changed arguments. After a call that returned a value, the arguments stay
unchanged: a candidate that empties its argument must not change what it is compared with.

Large answers are read and compared off the event loop, and their size is limited.
"""

import asyncio
import builtins
import io
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from palestra.errors import UsageError
from palestra.grading.decoding import MOST_MARKS, decode, marks
from palestra.grading.values import BadValue, Node, Tree, expression, same, tree_of
from palestra.sandbox.contract import Judged, KilledBy, Sandbox, TestLine

__all__ = ["CodeJudge", "CodeVerdict", "FunctionCase", "ProgramCase"]

_SHOWN = 200
_ON_LOOP = 16_384
"""Bytes up to which an answer is handled faster on the event loop than in a thread."""
_MARKS_IN_ALL = 20 * MOST_MARKS
"""Most brackets and commas in all answers of one judgement."""


@dataclass(frozen=True)
class FunctionCase:
    """Arguments and the expected return value."""

    arguments: Sequence[Any]
    expected: Any


@dataclass(frozen=True)
class ProgramCase:
    """Standard input and the expected output."""

    stdin: str
    stdout: str


@dataclass(frozen=True)
class CodeVerdict:
    """The result of judging a candidate."""

    passed: int
    total: int
    problem: str = ""
    """The first problem, as text for people; it may quote the candidate."""
    killed_by: KilledBy | None = None

    @property
    def ok(self) -> bool:
        """Whether there was at least one test and every test passed."""
        return 0 < self.total == self.passed

    @property
    def fraction(self) -> float:
        """Share of the tests that passed."""
        return self.passed / self.total if self.total else 0.0


@dataclass(frozen=True, kw_only=True)
class CodeJudge:
    """Judges candidates in boxes of ``sandbox``."""

    sandbox: Sandbox
    wall_seconds: float = 5.0
    """Wall time per test."""
    tolerance: float = 1e-9
    """Relative tolerance for floats. Close to zero, a millionth of it is the absolute tolerance."""
    lenient: bool = False
    """Set it if the expected values come from JSON, which has no tuples and only text keys.

    Then a tuple or range equals a list, a number one of another type with exactly the same value, and the key 1 equals "1".
    """
    decimals: bool = True
    """Whether a decimal number in the expected output of a program grants the tolerance. Turn it off for versions."""
    stop_at_failure: bool = True
    """Stop at the first test that fails. Turn it off to get the fraction passed."""
    calls_per_check: int = field(default=10_000)
    """Most calls of the candidate by test code."""

    async def function(self, code: str, entry: str, cases: Sequence[FunctionCase]) -> CodeVerdict:
        """Judge the function ``entry`` of ``code``, or the method ``Class.method``."""
        tally, budget = _Tally(len(cases)), _Budget()
        async with _Line(self.sandbox, b"F", code, entry) as line:
            for case in cases:
                given = _call_source([Node("tuple", list(map(tree_of, case.arguments))), Node("dict", []), False])
                judged = await line.ask(given, self.wall_seconds)
                tally.count(await self._value_problem(judged, tree_of(case.expected), budget), judged)
                if tally.problem and self.stop_at_failure:
                    break
        return tally.verdict()

    async def program(self, code: str, cases: Sequence[ProgramCase]) -> CodeVerdict:
        """Judge ``code`` as a program that reads standard input and prints."""
        tally = _Tally(len(cases))
        async with _Line(self.sandbox, b"I", code, "") as line:
            for case in cases:
                judged = await line.ask(case.stdin.encode(), self.wall_seconds)
                tally.count(await self._output_problem(judged, case.stdout), judged)
                if tally.problem and self.stop_at_failure:
                    break
        return tally.verdict()

    async def asserts(self, code: str, entry: str, tests: str, helpers: str = "") -> CodeVerdict:
        """Judge the function ``entry`` of ``code`` by the function ``check(candidate)`` of ``tests``.

        ``tests`` and ``helpers`` (definitions that the tests need) come from the data set, not from the model.
        """
        fields = [tests.encode(), helpers.encode(), entry.encode()]
        async with await self.sandbox.open_tests(b"T", fields) as tester, _Line(self.sandbox, b"F", code, entry) as line:
            reply: bytes | None = None
            budget = _Budget()
            for _ in range(self.calls_per_check):
                judged = await tester.ask(reply, wall_seconds=self.wall_seconds)
                if judged.frame is None or judged.frame[:1] != b"C":
                    return _check_verdict(judged)
                try:
                    reply = await self._relay(line, judged.frame[1:], budget)
                except _Unjudged as end:  # an exception in its place could be one that the tests expect
                    return CodeVerdict(0, 1, str(end), end.killed_by)
        return CodeVerdict(0, 1, f"the tests called the candidate more than {self.calls_per_check} times")

    async def _relay(self, line: "_Line", call: bytes, budget: "_Budget") -> bytes:
        killed_by = None
        try:
            given = await _beside_the_loop(lambda: _relayed_call(decode(call, shared=True)), len(call))
            judged = await line.ask(given, self.wall_seconds)
            killed_by = judged.killed_by
            budget.spend(judged)
            return await _beside_the_loop(lambda: _reply(judged), len(judged.frame or b""))
        except BadValue as error:
            raise _Unjudged(str(error)[:_SHOWN], killed_by) from None

    async def _value_problem(self, judged: Judged, expected: Tree, budget: "_Budget") -> str:
        try:
            budget.spend(judged)
            return await _beside_the_loop(lambda: self._compared(_value(judged), expected), len(judged.frame or b""))
        except BadValue as error:
            return str(error)

    def _compared(self, got: Tree, expected: Tree) -> str:
        try:
            if same(expected, got, tolerance=self.tolerance, lenient=self.lenient):
                return ""
        except (ArithmeticError, ValueError) as error:  # the candidate returned a number that Python cannot convert
            return f"returned a value that cannot be compared: {error}"
        return f"returned {expression(got)[:_SHOWN]}, which is not what was expected"

    async def _output_problem(self, judged: Judged, expected: str) -> str:
        if judged.frame is None or judged.frame[:1] != b"V":
            return _why(judged)
        try:
            got = judged.frame[1:].decode()
        except UnicodeDecodeError:
            return "printed bytes that are not UTF-8"
        work = partial(same_output, expected, got, self.tolerance, decimals=self.decimals)
        if await _beside_the_loop(work, len(judged.frame)):
            return ""
        return f"printed {got[:_SHOWN]!r}, which is not what was expected"


class _Line:
    """A candidate in a box. If a box was killed, the next test gets a new one."""

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

    def verdict(self) -> CodeVerdict:
        return CodeVerdict(self.passed, self.total, self.problem, self.killed_by)


def same_output(expected: str, got: str, tolerance: float, *, decimals: bool = True) -> bool:
    """Return whether two outputs agree, line by line and word by word; empty lines at the end and extra spaces do not count.

    Where the expected word is a decimal number, a number within the tolerance will do, unless ``decimals`` is false.
    """
    wanted, got = _until_the_last_word(expected), _until_the_last_word(got)
    if got.count("\n") != wanted.count("\n"):  # decided without splitting a million lines
        return False
    pairs = zip(io.StringIO(wanted, newline="\n"), io.StringIO(got, newline="\n"), strict=True)  # one line at a time
    return all(_same_line(ours, theirs, tolerance if decimals else None) for ours, theirs in pairs)


def _until_the_last_word(output: str) -> str:
    return output.replace("\r\n", "\n").rstrip(" \t\n") + "\n"


def _same_line(expected: str, got: str, tolerance: float | None) -> bool:
    wanted = _WORD.findall(expected)
    printed = [word[0] for word in itertools.islice(_WORD.finditer(got), len(wanted) + 1)]
    return len(printed) == len(wanted) and all(
        ours == theirs or (tolerance is not None and _same_number(ours, theirs, tolerance))
        for ours, theirs in zip(wanted, printed, strict=True)
    )


_WORD = re.compile(r"[^ \t\n]+")
_DECIMAL = re.compile(r"[+-]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[1-9][eE][+-]?[0-9]+|0[eE][+-][0-9]+)")
"""A word that programs print for a decimal number. ``12e3`` and ``0e46`` are none: hashes and ids look like this."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 1_000


def _same_number(expected: str, got: str, tolerance: float) -> bool:
    # The form of the expected word decides: integers, versions and ids must match exactly.
    if max(len(expected), len(got)) > _LONGEST_NUMBER or not _DECIMAL.fullmatch(expected) or not _NUMBER.fullmatch(got):
        return False
    wanted, printed = float(expected), float(got)
    if math.isinf(wanted) or math.isinf(printed) or (wanted == 0 and re.search("[1-9]", re.split("[eE]", expected)[0])):
        return False  # too large or too small for a float
    return same(wanted, printed, tolerance=tolerance)


def _value(judged: Judged) -> Tree:
    if judged.frame is None or judged.frame[:1] != b"V":
        raise BadValue(_why(judged))
    return decode(judged.frame[1:])


def _why(judged: Judged) -> str:
    if judged.killed_by is not None:
        return f"killed: {judged.killed_by}"
    message = judged.problem if judged.frame is None else judged.frame[1:].decode(errors="replace")
    return message[:_SHOWN] or "no answer"


def _check_verdict(judged: Judged) -> CodeVerdict:
    passed = judged.frame == b"G"
    return CodeVerdict(int(passed), 1, "" if passed else _why(judged), judged.killed_by)


def _call_source(call: list[Tree]) -> bytes:
    """Return a call for the runner in the box: arguments, keywords, and whether test code in another box makes it."""
    return expression(call).encode("utf-8", "surrogatepass")


def _relayed_call(call: Tree) -> bytes:
    _check_call(call)
    return _call_source([*call, True])


def _check_call(call: Tree) -> None:
    if not (isinstance(call, list) and [getattr(part, "kind", "") for part in call] == ["tuple", "dict"]):
        raise BadValue("not the arguments of a call")


def _reply(judged: Judged) -> bytes:
    """Return what test code sees of a call: a value, an exception, or the changed arguments."""
    kind = (judged.frame or b"")[:1]
    if kind not in (b"V", b"E", b"M"):
        raise BadValue(_why(judged))
    answer = decode((judged.frame or b"")[1:])
    if kind == b"E":
        _check_exception(answer)
    elif kind == b"M":
        _check_call(answer)
    return kind + expression(answer).encode("utf-8", "surrogatepass")


def _check_exception(tree: Tree) -> None:
    """Raise ``BadValue`` unless ``tree`` describes an ``Exception``, as the runner does."""
    match tree:
        case [str(name), [_, *_] as bases, str(), None | Node(kind="tuple"), None | [_, *_] as members]:
            builtin = [getattr(builtins, base, None) if isinstance(base, str) else None for base in bases]
            if name.isidentifier() and all(isinstance(base, type) and issubclass(base, Exception) for base in builtin):
                for member in members or ():
                    _check_exception(member)
                return
    raise BadValue("not an exception that tests can receive")


class _Unjudged(Exception):
    """A call of test code has no answer that can be judged."""

    def __init__(self, problem: str, killed_by: KilledBy | None) -> None:
        super().__init__(problem)
        self.killed_by = killed_by


class _Budget:
    """Limits the total size of a judgement's answers, so that many large answers cannot keep the host busy."""

    def __init__(self) -> None:
        self._left = _MARKS_IN_ALL

    def spend(self, judged: Judged) -> None:
        self._left -= marks(judged.frame or b"")
        if self._left < 0:
            raise BadValue("the answers are too large to be judged")


_Result = TypeVar("_Result")


async def _beside_the_loop(work: Callable[[], _Result], size: int) -> _Result:
    """Return the result of ``work`` on ``size`` bytes; run it in a thread if it would block the event loop."""
    return work() if size <= _ON_LOOP else await asyncio.to_thread(work)
