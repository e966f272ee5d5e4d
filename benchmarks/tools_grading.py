"""The judge against honest candidates in number, and the maths grader against hostile answers and against GEM's."""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from importlib import util
from pathlib import Path
from typing import Any

from rows import Row
from tests.grading import honest_code, maths_forms, text_forms
from tests.grading.hacks import ALTERED, HACKS
from tests.grading.hostile_answers import HOSTILE

from palestra.grading import exact_match
from palestra.grading.code import CodeJudge, CodeVerdict, FunctionCase, ProgramCase
from palestra.grading.maths import MathsGrader
from palestra.sandbox import Bubblewrap

_HONEST: tuple[tuple[str, Callable[[random.Random], tuple[tuple[object, ...], object]]], ...] = (
    ("def solve(a, b): return a + b", lambda r: ((a := r.randrange(10**30), b := r.randrange(10**30)), a + b)),
    ("def solve(v): return sorted(v)", lambda r: ((v := [r.random() for _ in range(20)],), sorted(v))),
    ("def solve(s): return s[::-1]", lambda r: ((s := "".join(r.choices("aé漢 \n'\"\\", k=30)),), s[::-1])),
    ("def solve(v): return set(v)", lambda r: ((v := r.choices(range(50), k=20),), set(v))),
    (
        "def solve(d): return {v: k for k, v in d.items()}",
        lambda r: (({"a": (n := r.randrange(99)), "b": -1},), {n: "a", -1: "b"}),
    ),
    (
        "def solve(a, b): return (a, [b, None, True], {'x': (a,)})",
        lambda r: ((a := r.random(), b := r.randrange(9)), (a, [b, None, True], {"x": (a,)})),
    ),
    ("def solve(n): return n / 7", lambda r: ((n := r.randrange(10**6),), n / 7)),
    ("def solve(b): return b * 2", lambda r: ((b := r.randbytes(20),), b * 2)),
    ("def solve(z): return z * 1j", lambda r: ((z := complex(r.random(), r.random()),), z * 1j)),
    ("def solve(n):\n    return [solve(n - 1)] if n else []", lambda r: ((2,), [[[]]])),
)


async def judge() -> list[Row]:
    """Every hack against every judge, and a thousand honest candidates."""
    chance = random.Random(0)
    async with Bubblewrap(warm=4) as sandbox:
        strict = CodeJudge(sandbox=sandbox, wall_seconds=2.0)
        check = "def check(candidate):\n    assert candidate(17, 25) == 42\n    assert candidate(-3, 1) == -2\n"
        cases, programs = (
            [FunctionCase((17, 25), 42), FunctionCase((-3, 1), -2)],
            [ProgramCase("17 25\n", "42\n"), ProgramCase("-3 1\n", "-2\n")],
        )
        async with asyncio.TaskGroup() as group:
            hacks = [group.create_task(strict.function(hack.function, "solve", cases)) for hack in HACKS]
            hacks += [group.create_task(strict.program(hack.program, programs)) for hack in HACKS]
            hacks += [group.create_task(strict.asserts(hack.function, "solve", check)) for hack in HACKS]
        passed = [HACKS[at % len(HACKS)].name for at, task in enumerate(hacks) if task.result().ok]
        print(f"judge: false passes {passed}")
        honest = CodeJudge(sandbox=sandbox, wall_seconds=20.0)
        async with asyncio.TaskGroup() as group:
            fair = []
            for number in range(1000):
                code, make = _HONEST[number % len(_HONEST)]
                made = [FunctionCase(*make(chance)) for _ in range(3)]
                fair.append(group.create_task(honest.function(code, "solve", made)))
        problems = [task.result().problem for task in fair if not task.result().ok]
        print(f"judge: false fails {problems[:3]}")
    return [
        Row(f"false passes of {len(HACKS)} hacks against 3 judges", len(passed), "<= 0"),
        Row("false fails of 1,000 correct candidates", len(problems), "<= 0"),
    ]


async def forms() -> list[Row]:
    """Right answers in every form, and wrong ones that look right, to the judge of code, of mathematics and of words."""
    async with Bubblewrap(warm=4) as sandbox:
        judge = CodeJudge(sandbox=sandbox, wall_seconds=20.0)
        check = "def check(candidate):\n    assert candidate(17, 25) == 42\n"
        rows = [*honest_code.RETURNED, *honest_code.CALLED]
        work = [judge.asserts(row.code, "solve", row.tests) for row in rows]
        work += [judge.asserts(code, "solve", check) for code in honest_code.ADDED]
        work += [judge.program(code, [ProgramCase("17 25\n", "42\n")]) for code in honest_code.PROGRAMS]
        names = "from collections import *\nfrom fractions import *\nfrom decimal import *\n"
        near = [
            judge.function(f"{names}def solve(): return {one.returned}", "solve", [FunctionCase((), one.expected)])
            for one in ALTERED
        ]
        honest, altered = await _verdicts(work), await _verdicts(near)
    async with MathsGrader() as grader:
        written = [(form, gold) for gold, forms in maths_forms.HONEST.items() for form in forms]
        lost = [pair for pair in written if not await grader.equivalent(*pair)]
        taken = [pair for pair in maths_forms.WRONG if await grader.equivalent(*pair)]
    said = [(form, gold) for gold, forms in text_forms.HONEST.items() for form in (gold, *forms)]
    lost += [pair for pair in said if not exact_match(*pair)]
    taken += [pair for pair in text_forms.WRONG if exact_match(*pair)]
    fails = len(lost) + sum(not verdict.ok for verdict in honest)
    passes = len(taken) + sum(verdict.ok for verdict in altered)
    print(f"forms: lost {lost[:3]}, taken {taken[:3]}")
    right, wrong = len(honest) + len(written) + len(said), len(altered) + len(maths_forms.WRONG) + len(text_forms.WRONG)
    return [
        Row(f"right answers lost of {right} forms", fails, "<= 0"),
        Row(f"wrong answers taken of {wrong} that look right", passes, "<= 0"),
    ]


async def _verdicts(work: list[Coroutine[Any, Any, CodeVerdict]]) -> list[CodeVerdict]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]


async def hostile() -> list[Row]:
    """Two hundred hostile answers, each followed by an honest one."""
    async with MathsGrader() as grader:
        taken, wrong = [], []
        for answer in HOSTILE:
            began = time.monotonic()
            if await grader.equivalent(answer, "\\sqrt{8}"):
                wrong.append(answer)
            taken.append(time.monotonic() - began)
            if not await grader.equivalent("2\\sqrt{2}", "\\sqrt{8}"):
                wrong.append(f"honest answer after {answer[:40]!r}")
        print(f"hostile maths: {grader.counts}, wrong {wrong[:3]}")
    return [
        Row(f"slowest of {len(HOSTILE)} hostile answers, s", max(taken), "<= 1.0"),
        Row("hostile answers taken, and honest ones after them refused", len(wrong), "<= 0"),
    ]


# -------------------------------------------------------------------------------------------------------- against GEM's


def _mixed(count: int) -> list[tuple[str, str]]:
    """Answers as models give them: most are numbers, some formulas; half are wrong."""
    chance = random.Random(0)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        a, b = chance.randrange(1, 100), chance.randrange(2, 30)
        wrong = chance.random() < 0.5
        kinds = [
            (str(a), str(a + wrong)),
            (str(a), str(a + wrong)),
            (f"{a}.0", str(a + wrong)),
            (f"{a},000", f"{a + wrong}000"),
            (f"\\frac{{{a}}}{{{b}}}", f"{a + wrong}/{b}"),
            (f"\\dfrac{{{a}}}{{{b}}}", f"\\frac{{{a + wrong}}}{{{b}}}"),
            (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{(a + wrong) ** 2 * b}}}"),
            (f"({a}, {b})", f"({a + wrong},{b})"),
            (f"x^2+{2 * a}x+{a * a + wrong}", f"(x+{a})^2"),
            (f"{a}\\pi", f"\\pi\\cdot {a + wrong}"),
            (f"{a}\\%", f"{a + wrong}\\%"),
            (f"x={a}", str(a + wrong)),
        ]
        pairs.append(chance.choice(kinds))
    return pairs


async def maths() -> list[Row]:
    """Our grader and GEM's on one mixed set, in turns; every disagreement is printed."""
    pairs = _mixed(600)
    grade = _gem_grader()
    async with MathsGrader(workers=1) as grader:
        for answer, gold in pairs[:50]:
            await grader.equivalent(answer, gold)
        ratios: list[float] = []
        ours: list[bool] = []
        theirs: list[bool] = []
        for start in range(0, len(pairs), 100):
            part = pairs[start : start + 100]
            began = time.monotonic()
            ours += [await grader.equivalent(answer, gold) for answer, gold in part]
            middle = time.monotonic()
            if grade is not None:
                theirs += [grade(answer, gold) for answer, gold in part]
                ratios.append((time.monotonic() - middle) / (middle - began))
        print(f"maths: {len(pairs)} answers, {sum(ours)} right, {grader.counts}")
    if grade is None:
        print("maths: gem-llm is not installed here, so there is nothing to compare with")
        return []
    differing = [(pair, mine, other) for pair, mine, other in zip(pairs, ours, theirs, strict=True) if mine != other]
    print(f"maths: {len(differing)} disagreements")
    for (answer, gold), mine, other in differing:
        print(f"  answer {answer!r}, gold {gold!r}: ours {mine}, GEM's {other}")
    return [Row("maths grading, our throughput over GEM's", statistics.median(ratios), ">= 2")]


def _gem_grader() -> Callable[[str, str], bool] | None:
    """GEM's grader, by its file: its package would import every environment it has."""
    found = util.find_spec("gem")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "utils" / "math_grader.py"
    spec = util.spec_from_file_location("gem_math_grader", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def grade(answer: str, gold: str) -> bool:
        return bool(module.boxed_reward_fn(f"\\boxed{{{answer}}}", gold, fast=False)[1] > 0)

    return grade
