import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from tests.grading.hacks import ALTERED, HACKS, Altered, Hack
from tests.grading.honest_code import ADDED, CALLED, JSON_VALUES, PROGRAMS, RETURNED, Honest

from palestra.errors import UsageError
from palestra.grading import code as code_module
from palestra.grading.code import CodeJudge, CodeVerdict, FunctionCase, ProgramCase
from palestra.grading.readings import Readings
from palestra.sandbox import KilledBy

FUNCTION = [FunctionCase((17, 25), 42), FunctionCase((-3, 1), -2)]
PROGRAM = [ProgramCase("17 25\n", "42\n"), ProgramCase("-3 1\n", "-2\n")]
CHECK = "def check(candidate):\n    assert candidate(17, 25) == 42\n    assert abs(candidate(-3, 1) - -2) < 1e-6\n"

Judging = Callable[[CodeJudge, Hack], Awaitable[CodeVerdict]]
JUDGES: dict[str, Judging] = {
    "function": lambda judge, hack: judge.function(hack.function, "solve", FUNCTION),
    "program": lambda judge, hack: judge.program(hack.program, PROGRAM),
    "asserts": lambda judge, hack: judge.asserts(hack.function, "solve", CHECK),
}


@pytest.mark.parametrize("kind", JUDGES)
@pytest.mark.slow
async def test_no_hack_passes(kind: str, judge: CodeJudge) -> None:
    assert len(HACKS) >= 100
    assert len({hack.name for hack in HACKS}) == len(HACKS)
    hurried = replace(judge, wall_seconds=1.0)
    async with asyncio.TaskGroup() as group:
        verdicts = {hack.name: group.create_task(_judged(JUDGES[kind](hurried, hack))) for hack in HACKS}
    assert [name for name, task in verdicts.items() if task.result().ok] == []


async def _judged(work: Awaitable[CodeVerdict]) -> CodeVerdict:
    return await work


async def test_a_candidate_may_raise_what_tests_expect(judge: CodeJudge) -> None:
    raised = "[ValueError('no'), Own('no', 1), ExceptionGroup('g', [OSError(2, 'x')])]"
    code = f"class Own(KeyError): pass\ndef solve(n):\n    raise {raised}[n]"
    check = """
def check(candidate):
    for n, kinds in enumerate([ValueError, LookupError, ExceptionGroup]):
        try:
            candidate(n)
        except kinds as error:
            assert n < 2 or type(error.exceptions[0]) is FileNotFoundError
            assert n or str(error) == "no"
        else:
            assert False
"""
    verdict = await judge.asserts(code, "solve", check)
    assert verdict.ok, verdict


async def test_values_go_into_a_box_and_come_out_as_they_are(judge: CodeJudge) -> None:
    values = [10**40, -1.5, float("nan"), "é漢\n'\"\\", b"\x00\xff", [1, [2, ()], {"a": {3, 4}}], {1: "a", (2,): None}, 2j]
    cases = [FunctionCase((value,), (value, len(values))) for value in values]
    code = f"seen = []\ndef solve(x):\n    seen.append(x)\n    return x, {len(values)} * len(seen)"
    verdict = await judge.function(code, "solve", cases)
    assert verdict.ok, "and no test sees what another has left behind"


async def test_keywords_choose_how_values_and_outputs_are_compared(judge: CodeJudge) -> None:
    code, cases = "def solve(): return (1, [2.0, (3,)])", [FunctionCase((), [1, [2, [3]]])]
    assert not (await judge.function(code, "solve", cases)).ok
    assert (await replace(judge, lenient=True).function(code, "solve", cases)).ok
    printed = [ProgramCase("", "1.10")]
    assert (await judge.program("print('1.1')", printed)).ok
    assert not (await replace(judge, decimals=False).program("print('1.1')", printed)).ok


def test_defaults(judge: CodeJudge) -> None:
    limits = {"wall_seconds": 5.0, "tolerance": 1e-9, "calls_per_check": 10_000}
    fresh = CodeJudge(sandbox=judge.sandbox)
    assert fresh == CodeJudge(sandbox=judge.sandbox, **limits, lenient=False, decimals=True, stop_at_failure=True)  # type: ignore[arg-type]
    assert Readings() == Readings("points", "written", "either", "either", None, "10")


@pytest.mark.slow
async def test_methods_fractions_and_time_outs(judge: CodeJudge) -> None:
    code = "class Solution:\n    def solve(self, n):\n        while n == 2: pass\n        return n"
    hurried = replace(judge, wall_seconds=2.0)
    patient = replace(hurried, stop_at_failure=False)
    verdict = await patient.function(code, "Solution.solve", [FunctionCase((n,), n) for n in range(5)])
    assert (verdict.passed, verdict.total, verdict.killed_by) == (4, 5, KilledBy.WALL_CLOCK)
    assert verdict.fraction == 0.8
    assert (await hurried.function(code, "Solution.solve", [FunctionCase((n,), n) for n in range(5)])).passed == 2


async def test_no_test_at_all_is_no_pass(judge: CodeJudge) -> None:
    assert not (await judge.function("def solve(): pass", "solve", [])).ok


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
    ("code", "output", "right"),
    [
        ("import sys\nprint(5)\nsys.stdout.write('\\n' * (4 << 20))\nprint('junk')", "5", False),
        ("print('a ' * (5 << 19))", "a " * (5 << 19), True),
        ("print('a ' * (9 << 20))", "a " * (9 << 20), False),
        ("import os\nprint(5, flush=True)\nos.kill(os.getpid(), 9)", "5", False),
        (
            "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 1))\nprint(5, flush=True)\nwhile True: pass",
            "5",
            False,
        ),
        ("import os\nprint('\\ufffd', flush=True)", "\ufffd", True),
        ("import os\nos.write(1, b'\\xff')", "\ufffd", False),
        ("import os\nprint(5, flush=True)\nos._exit(3)", "5", True),
        ("# -*- coding: latin-1 -*-\nprint('é')", "é", True),
    ],
    ids=["junk far behind", "large", "too large", "killed", "out of time", "text", "bytes", "exit code", "cookie"],
)
async def test_the_whole_output_of_a_program_counts(code: str, output: str, right: bool, judge: CodeJudge) -> None:
    assert (await judge.program(code, [ProgramCase("", output)])).ok is right


async def test_names_that_are_no_names_are_refused(judge: CodeJudge) -> None:
    with pytest.raises(UsageError):
        await judge.function("", "solve()", FUNCTION)


async def test_tests_that_never_stop_calling_are_stopped(judge: CodeJudge) -> None:
    verdict = await replace(judge, calls_per_check=20).asserts(
        "def solve(): return 1", "solve", "def check(candidate):\n    while True: candidate()\n"
    )
    assert not verdict.ok
    assert "more than 20" in verdict.problem


# ------------------------------------------------------------------------------------------------------- honest candidates


@pytest.mark.parametrize("rows", [RETURNED, CALLED], ids=["returned", "called"])
def test_the_honest_rows_pass_in_one_process(rows: list[Honest]) -> None:
    for row in rows:
        namespace: dict[str, Any] = {"__name__": "plain"}
        exec(row.code, namespace)  # noqa: S102
        exec(row.tests, namespace)  # noqa: S102
        namespace["check"](namespace["solve"])


@pytest.mark.parametrize("rows", [RETURNED, CALLED], ids=["returned", "called"])
@pytest.mark.slow
async def test_test_code_sees_what_a_plain_exec_would_show_it(rows: list[Honest], judge: CodeJudge) -> None:
    verdicts = await _each(judge.asserts(row.code, "solve", row.tests) for row in rows)
    assert [(row, verdict.problem) for row, verdict in zip(rows, verdicts, strict=True) if not verdict.ok] == []


@pytest.mark.slow
async def test_a_candidate_may_have_a_main_of_its_own(judge: CodeJudge) -> None:
    verdicts = await _each(judge.asserts(code, "solve", CHECK) for code in ADDED)
    verdicts += await _each(judge.function(code, "solve", FUNCTION) for code in ADDED)
    assert [(code, verdict.problem) for code, verdict in zip(ADDED * 2, verdicts, strict=True) if not verdict.ok] == []
    verdicts = await _each(judge.program(code, PROGRAM) for code in PROGRAMS)
    assert [(code, verdict.problem) for code, verdict in zip(PROGRAMS, verdicts, strict=True) if not verdict.ok] == []


@pytest.mark.slow
async def test_what_json_cannot_say_is_not_held_against_a_candidate(judge: CodeJudge) -> None:
    code = "from collections import *\nfrom enum import *\nfrom fractions import Fraction\nfrom decimal import Decimal\n"
    lenient = replace(judge, lenient=True)
    sources = [f"{code}def solve(): return {value}" for value, _ in JSON_VALUES]
    cases = [[FunctionCase((), expected)] for _, expected in JSON_VALUES]
    verdicts = await _each(lenient.function(source, "solve", case) for source, case in zip(sources, cases, strict=True))
    assert [(row, verdict.problem) for row, verdict in zip(JSON_VALUES, verdicts, strict=True) if not verdict.ok] == []


@pytest.mark.parametrize("altered", ALTERED, ids=lambda altered: altered.name)
async def test_no_wrong_value_passes_for_a_near_one(altered: Altered, judge: CodeJudge) -> None:
    code = (
        f"from collections import *\nfrom fractions import *\nfrom decimal import *\ndef solve(*a): return {altered.returned}"
    )
    case = [FunctionCase((), altered.expected)]
    assert not (await judge.function(code, "solve", case)).ok
    assert not (await replace(judge, lenient=True).function(code, "solve", case)).ok


@pytest.mark.parametrize("error", [OverflowError, ValueError, ZeroDivisionError])
async def test_a_value_that_cannot_be_compared_is_wrong(
    error: type[Exception], judge: CodeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(*_: object, **__: object) -> bool:
        raise error("no such number")

    monkeypatch.setattr(code_module, "same", same)
    verdict = await judge.function("def solve(a, b): return a + b", "solve", FUNCTION)
    assert (verdict.ok, verdict.problem) == (False, "returned a value that cannot be compared: no such number")


async def test_a_call_that_returns_a_value_does_not_change_what_it_is_compared_with(judge: CodeJudge) -> None:
    hack = "def solve(v):\n    v.clear()\n    return v"
    check = "def check(candidate):\n    v = [3, 1, 2]\n    assert candidate(v) == sorted(v)\n"
    assert not (await judge.asserts(hack, "solve", check)).ok
    assert (await judge.asserts("def solve(v): return sorted(v)", "solve", check)).ok


# ----------------------------------------------------------------------------------------------------------- large answers


@pytest.mark.parametrize("value", ["[[]] * 1_390_000", "[[[[[[[[]]]]]]]] * 90_000", "list(range(290_000))", "[()] * 300_000"])
@pytest.mark.parametrize("kind", ["function", "asserts"])
@pytest.mark.slow
async def test_a_large_answer_is_refused_before_it_is_read(kind: str, value: str, judge: CodeJudge) -> None:
    code = f"def solve(*a): return {value}"
    longest, stop = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not stop.is_set():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        patient = replace(judge, wall_seconds=30.0)
        if kind == "function":
            verdict = await patient.function(code, "solve", FUNCTION)
        else:
            verdict = await patient.asserts(code, "solve", CHECK)
        stop.set()
    assert not verdict.ok
    assert "too large" in verdict.problem
    assert longest < 0.4, "the event loop was held"


async def test_many_large_answers_are_too_many(judge: CodeJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "_MARKS_IN_ALL", 25_000)
    code = "def solve(*a): return [0] * 5_000"
    assert (await judge.function(code, "solve", [FunctionCase((), [0] * 5_000)] * 2)).ok
    assert "too large" in (await judge.function(code, "solve", [FunctionCase((), [0] * 5_000)] * 3)).problem
    check = "def check(candidate):\n    for _ in range({}): assert len(candidate()) == 5_000\n"
    assert (await judge.asserts(code, "solve", check.format(2))).ok
    assert "too large" in (await judge.asserts(code, "solve", check.format(3))).problem


async def _each(works: Iterable[Awaitable[CodeVerdict]]) -> list[CodeVerdict]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_judged(work)) for work in works]
    return [task.result() for task in tasks]


@pytest.mark.parametrize("flood", ["'1\\n' * 2_000_000", "'1 ' * 2_000_000", "'\\r' * 4_000_000 + '1'"])
async def test_a_flood_of_output_does_not_hold_the_loop(flood: str, judge: CodeJudge) -> None:
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.process_time() - began)

    beating = asyncio.create_task(beat())
    verdict = await judge.program(f"import sys; sys.stdout.write({flood})", [ProgramCase("", "1\n")])
    beating.cancel()
    assert not verdict.ok
    assert longest < 1.6  # of this process's time, between two beats
