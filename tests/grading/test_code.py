import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.grading.hacks import HACKS, Hack

from palestra.errors import UsageError
from palestra.grading.code import CodeJudge, FunctionCase, ProgramCase, Verdict, same_output
from palestra.sandbox import KilledBy

FUNCTION = [FunctionCase((17, 25), 42), FunctionCase((-3, 1), -2)]
PROGRAM = [ProgramCase("17 25\n", "42\n"), ProgramCase("-3 1\n", "-2\n")]
CHECK = "def check(candidate):\n    assert candidate(17, 25) == 42\n    assert abs(candidate(-3, 1) - -2) < 1e-6\n"

Judging = Callable[[CodeJudge, Hack], Awaitable[Verdict]]
JUDGES: dict[str, Judging] = {
    "function": lambda judge, hack: judge.function(hack.function, "solve", FUNCTION),
    "program": lambda judge, hack: judge.program(hack.program, PROGRAM),
    "asserts": lambda judge, hack: judge.asserts(hack.function, "solve", CHECK),
}


@pytest.mark.parametrize("kind", JUDGES)
async def test_no_hack_passes(kind: str, judge: CodeJudge) -> None:
    assert len(HACKS) >= 100
    assert len({hack.name for hack in HACKS}) == len(HACKS)
    hurried = replace(judge, wall_seconds=1.0)
    async with asyncio.TaskGroup() as group:
        verdicts = {hack.name: group.create_task(_judged(JUDGES[kind](hurried, hack))) for hack in HACKS}
    assert [name for name, task in verdicts.items() if task.result().ok] == []


async def _judged(work: Awaitable[Verdict]) -> Verdict:
    return await work


@pytest.mark.parametrize("kind", JUDGES)
async def test_the_honest_candidate_passes(kind: str, judge: CodeJudge) -> None:
    honest = Hack("honest", "import sys", "sum(arguments) if 'arguments' in globals() | locals() else 0")
    program = Hack("honest", "", "sum(map(int, input().split()))")
    verdict = await JUDGES[kind](judge, program if kind == "program" else honest)
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("code", "arguments", "expected"),
    [
        ("def solve(x): return x", (10**40,), 10**40),
        ("def solve(x): return x", (-1.5,), -1.5),
        ("def solve(x): return x / 3", (1,), 1 / 3),
        ("def solve(x): return float(x)", ("nan",), float("nan")),
        ("def solve(x): return -float(x)", ("inf",), float("-inf")),
        ("def solve(x): return x[::-1]", ("é漢\n'\"\\",), "\\\"'\n漢é"),
        ("def solve(x): return x", (b"\x00\xff",), b"\x00\xff"),
        ("def solve(x): return x", ([1, [2, ()], {"a": {3, 4}}],), [1, [2, ()], {"a": {4, 3}}]),
        ("def solve(x): return {v: k for k, v in x.items()}", ({"a": 1, "b": (2,)},), {1: "a", (2,): "b"}),
        ("def solve(x): return frozenset(x)", ([2, 1],), frozenset({1, 2})),
        ("def solve(x): return x, None, True, 2j", (1,), (1, None, True, 2j)),
        ("def solve(): pass", (), None),
        ("import functools\n@functools.lru_cache\ndef solve(x): return x + 1", (1,), 2),
        ("from typing import *\nclass A:\n    pass\ndef solve(x): return isinstance(A(), A)", (1,), True),
    ],
)
async def test_values_come_out_as_they_are(code: str, arguments: tuple[Any, ...], expected: Any, judge: CodeJudge) -> None:
    verdict = await judge.function(code, "solve", [FunctionCase(arguments, expected)])
    assert verdict.ok, verdict


@pytest.mark.parametrize(
    ("returned", "expected"), [("1", 1.0), ("1.0", 1), ("True", 1), ("[1]", (1,)), ("{}", set()), ("'1'", 1), ("None", False)]
)
async def test_types_are_part_of_the_answer(returned: str, expected: Any, judge: CodeJudge) -> None:
    verdict = await judge.function(f"def solve(): return {returned}", "solve", [FunctionCase((), expected)])
    assert not verdict.ok


async def test_leniency_is_for_values_that_came_from_json(judge: CodeJudge) -> None:
    code = "def solve(): return (1, [2.0, (3,)])"
    cases = [FunctionCase((), [1, [2, [3]]])]
    assert not (await judge.function(code, "solve", cases)).ok
    assert (await replace(judge, lenient=True).function(code, "solve", cases)).ok


async def test_methods_fractions_and_time_outs(judge: CodeJudge) -> None:
    code = "class Solution:\n    def solve(self, n):\n        while n == 2: pass\n        return n"
    patient = replace(judge, stop_at_failure=False, wall_seconds=0.5)
    verdict = await patient.function(code, "Solution.solve", [FunctionCase((n,), n) for n in range(5)])
    assert (verdict.passed, verdict.total, verdict.killed_by) == (4, 5, KilledBy.WALL_CLOCK)
    assert verdict.fraction == 0.8
    assert (await judge.function(code, "Solution.solve", [FunctionCase((n,), n) for n in range(5)])).passed == 2


async def test_no_test_at_all_is_no_pass(judge: CodeJudge) -> None:
    assert not (await judge.function("def solve(): pass", "solve", [])).ok


async def test_one_test_cannot_tell_the_next(judge: CodeJudge) -> None:
    code = "seen = []\ndef solve(n):\n    seen.append(n)\n    return len(seen)"
    assert (await judge.function(code, "solve", [FunctionCase((n,), 1) for n in range(4)])).ok


async def test_programs_end_as_programs_do(judge: CodeJudge) -> None:
    code = """
import atexit, sys, threading
out = []
atexit.register(lambda: sys.stdout.write("\\n".join(out)))
def main():
    for line in sys.stdin:
        out.append(str(int(line) * 2))
threading.Thread(target=main).start()
"""
    assert (await judge.program(code, [ProgramCase("1\n2\n", "2\n4")])).ok
    assert (await judge.program("print(1)\nexit()", [ProgramCase("", "1")])).ok
    assert not (await judge.program("print(1)\n1/0", [ProgramCase("", "1")])).ok


@pytest.mark.parametrize(
    ("expected", "got", "alike"),
    [
        ("1 2\n3\n", "1  2 \n3\n\n", True),
        ("1 2\n3\n", "1 2 3\n", False),
        ("0.30000000000000004", "0.3", True),
        ("3", "3.0", False),
        ("3.0", "3", True),
        ("nan", "1", False),
        ("Yes", "yes", False),
        ("", "", True),
        ("1.5", "inf", False),
        ("1e3", "_", False),
    ],
)
def test_outputs_are_compared_word_by_word(expected: str, got: str, alike: bool) -> None:
    assert same_output(expected, got, 1e-9) is alike


async def test_names_that_are_no_names_are_refused(judge: CodeJudge) -> None:
    with pytest.raises(UsageError):
        await judge.function("", "solve()", FUNCTION)


async def test_tests_that_never_stop_calling_are_stopped(judge: CodeJudge) -> None:
    verdict = await replace(judge, calls_per_check=20).asserts(
        "def solve(): return 1", "solve", "def check(candidate):\n    while True: candidate()\n"
    )
    assert not verdict.ok
    assert "more than 20" in verdict.problem
