# ruff: noqa: E501
"""Tests that are code: no way to end, and no limit of the judge, is the exception that a test expects."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from palestra.grading.code import CodeJudge, CodeVerdict

EXPECTS = [
    "    try:\n        candidate(-1)\n    except Exception:\n        pass\n    else:\n        assert False\n",
    "    try:\n        candidate(-1)\n    except (RuntimeError, TypeError, ValueError, OSError, MemoryError):\n        return\n    assert False\n",
    "    import unittest\n    unittest.TestCase().assertRaises(Exception, candidate, -1)\n",
    "    failed = False\n    try:\n        candidate(-1)\n    except:\n        failed = True\n    assert failed\n",
]
"""Bodies of tests that expect an exception for -1. In the last, in one process, a bare ``except`` would take anything."""


def _cells(table: str) -> list[str]:
    """Return the cells of a table, in each of which ``⏎`` ends a line."""
    return [cell.strip() for cell in table.strip().replace("\n", "¦").split("¦")]


LOOPS = _cells(r"""
while True: pass ¦ import time; time.sleep(60) ¦ import signal; signal.pause()
import threading; threading.Event().wait() ¦ import os; os.kill(os.getpid(), 19) ¦ input_ = iter(int, 1); list(input_)
import subprocess; subprocess.run(['sleep', '60']) ¦ import os⏎r, w = os.pipe(); os.read(r, 1) ¦ return iter(int, 1)
import itertools; return itertools.count() ¦ return (0 for _ in iter(int, 1))
raise type('E', (ValueError,), {'__str__': lambda s: [0 for _ in iter(int, 1)]})
""")
"""Ways not to answer, or not to end an answer."""
ENDS = _cells(r"""
import sys; sys.exit() ¦ import sys; sys.exit(1) ¦ import sys; sys.exit('Error') ¦ raise SystemExit ¦ exit() ¦ quit(3)
raise KeyboardInterrupt ¦ raise GeneratorExit ¦ raise BaseException ¦ raise BaseException('RuntimeError')
raise type('RuntimeError', (BaseException,), {})('x') ¦ raise BaseExceptionGroup('g', [SystemExit()])
import asyncio; raise asyncio.CancelledError ¦ import os; os._exit(0) ¦ import os; os._exit(1) ¦ import os; os.abort()
import os; os.kill(os.getpid(), 9) ¦ import os; os.kill(os.getpid(), 15) ¦ import os; os.kill(os.getpid(), 11)
import os; os.kill(os.getppid(), 9) ¦ import os; os.kill(-1, 9) ¦ import os; os.kill(0, 9)
import os; os.execv('/usr/bin/true', ['true']) ¦ import os; os.closerange(0, 64) ¦ import ctypes; ctypes.string_at(0)
import resource; resource.setrlimit(resource.RLIMIT_CPU, (0, 0))⏎while True: pass
import signal; signal.alarm(1); signal.pause() ¦ import faulthandler; faulthandler._sigsegv() ¦ raise MemoryError
bytearray(1 << 40) ¦ bytearray(3 << 30) ¦ [0] * (1 << 60) ¦ x = 'x' * (900 << 20); y = x + x
import sys; sys.setrecursionlimit(10**9)⏎def g(n): return [g(n + 1)]⏎g(0)
""")
"""Ways to end, or to be ended."""
UNJUDGEABLE = _cells(r"""
object() ¦ lambda: 0 ¦ f ¦ print ¦ type ¦ int ¦ ValueError() ¦ ValueError ¦ NotImplemented ¦ ... ¦ __import__('sys')
open('/dev/null') ¦ type('C', (), {})() ¦ [object()] ¦ {'a': lambda: 0} ¦ (object(),) ¦ [0] * 300000 ¦ [[]] * 1000000
range(10**9).__iter__() ¦ 'x' * (5 << 20) ¦ 10 ** 10000000 ¦ nested(300) ¦ nested(5000) ¦ memoryview(b'x') ¦ slice(1, 2)
__import__('datetime').date(2000, 1, 1) ¦ __import__('pathlib').Path('x') ¦ __import__('re').compile('x')
__import__('enum').Enum('E', 'A').A ¦ type('E', (Exception,), {})() ¦ (1 // 0 for _ in [1]) ¦ map(lambda n: 1 // n, [0])
(exit() for _ in [1]) ¦ iter(lambda: [].pop(), 1) ¦ __import__('types').SimpleNamespace(a=1)
__import__('dataclasses').make_dataclass('D', ['a'])(1) ¦ __import__('decimal').Decimal('1' * 2000)
__import__('fractions').Fraction(10**3000, 7) ¦ cyclic() ¦ __import__('collections').UserDict(a=1)
__import__('array').array('i', [1])
""")
"""Values that no test can receive, and answers that are too large."""
_MADE = """
def nested(depth):
    value = []
    for _ in range(depth): value = [value]
    return value
def cyclic():
    value = []
    value.append(value)
    return value
"""
LOADING = [
    "raise ValueError('at import')",
    "1 / 0",
    "import nothing_of_this_name",
    "import sys; sys.exit()",
    "raise KeyboardInterrupt",
    "import os; os._exit(0)",
    "del f",
    "def (",
    "f = None; del f; f()",
]
"""Last lines of a candidate that cannot be loaded, or has no function ``f``."""
STOPS = _cells(r"""
for a, b in zip(map(candidate, [-1, 2]), [1, 4]): assert a == b ¦ assert all(map(candidate, [-1, 2]))
assert list(map(candidate, [-1, 2])) == [] ¦ assert sum(map(candidate, [-1])) == 0
assert not any(filter(candidate, [-1])) ¦ assert list(iter(lambda: candidate(-1), 5)) == []
assert next(map(candidate, [-1]), None) is None ¦ assert dict(zip(map(candidate, [-1]), 'a')) == {}
assert [*map(candidate, [-1])] == [] ¦ a, *b = [0, *map(candidate, [-1])]⏎assert not b
assert sorted(map(candidate, [-1])) == [] ¦ assert ''.join(map(candidate, [-1])) == ''
for _ in map(candidate, [-1]): assert False
import itertools⏎assert list(itertools.chain.from_iterable(map(candidate, [-1]))) == []
import itertools⏎assert list(itertools.starmap(candidate, [(-1,)])) == []
assert list(candidate(n) for n in [-1]) == [] ¦ assert max(map(candidate, [-1]), default=1) == 1
""")
"""Bodies of tests in which a ``StopIteration`` of the candidate ends a loop."""


class Wrong(NamedTuple):
    code: str
    tests: str
    kind: str


def _wrong() -> list[Wrong]:
    rows = []
    bodies = [
        (f"        {body}\n".replace("⏎", "\n        "), kind)
        for kind, part in (("loop", LOOPS), ("end", ENDS))
        for body in part
    ]
    bodies += [(f"        return {value}\n", "value") for value in UNJUDGEABLE]
    for place, (body, kind) in enumerate(bodies):
        code = f"{_MADE}def f(x):\n    if x < 0:\n{body}    return x\n"
        for number, expects in enumerate(EXPECTS):
            if kind != "loop" or place % len(EXPECTS) == number:
                rows.append(Wrong(code, f"def check(candidate):\n    assert candidate(1) == 1\n{expects}", kind))
    for line in LOADING:
        code = f"def f(x):\n    if x < 0: raise ValueError\n    return x\n{line}\n"
        rows += [Wrong(code, f"def check(candidate):\n{expects}", "load") for expects in EXPECTS]
    for kind_of in ("StopIteration", "Own"):
        code = f"class Own(StopIteration): pass\ndef f(x):\n    raise {kind_of}\n"
        rows += [Wrong(code, f"def check(candidate):\n    {body}\n".replace("⏎", "\n    "), "stop") for body in STOPS]
    return rows


WRONG = _wrong()


async def _all(judge: CodeJudge, rows: Sequence[tuple[str, str]]) -> list[CodeVerdict]:
    async with asyncio.TaskGroup() as group:
        judging = [group.create_task(judge.asserts(code, "f", tests)) for code, tests in rows]
    return [task.result() for task in judging]


@pytest.mark.slow
async def test_nothing_but_an_exception_is_an_expected_exception(judge: CodeJudge) -> None:
    assert len({(row.code, row.tests) for row in WRONG}) == len(WRONG) >= 350
    sample = [*random.Random(41).sample([row for row in WRONG if row.kind != "loop"], 40), WRONG[0]]
    verdicts = await _all(replace(judge, wall_seconds=2.0), [(row.code, row.tests) for row in sample])
    assert [row for row, verdict in zip(sample, verdicts, strict=True) if verdict.ok] == []


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_way_to_end_is_an_expected_exception(judge: CodeJudge) -> None:
    verdicts = await _all(replace(judge, wall_seconds=2.0), [(row.code, row.tests) for row in WRONG])
    assert [row for row, verdict in zip(WRONG, verdicts, strict=True) if verdict.ok] == []


# ------------------------------------------------------------------------------------------------------------ right answers

_RAISED = """
class Own(ValueError):
    pass
class Both(KeyError, ValueError):
    pass
class Says(ValueError):
    def __init__(self, amount, limit):
        self.amount = amount
        super().__init__(amount, limit)
    def __str__(self): return f"{self.amount} is too much"
class Broken(ValueError):
    def __str__(self): raise RuntimeError("no message")
def f(x): raise x if isinstance(x, type) else eval(x)
"""
EXCEPTIONS = [
    ("KeyError('a')", "KeyError", "error.args == ('a',) and str(error) == \"'a'\""),
    ("ValueError('bad')", "ValueError", "str(error) == 'bad' and type(error) is ValueError"),
    ("ValueError('bad', 3)", "ValueError", "error.args == ('bad', 3)"),
    ("ValueError()", "ValueError", "error.args == () and str(error) == ''"),
    ("ValueError([1, {2: (3,)}])", "ValueError", "error.args[0] == [1, {2: (3,)}]"),
    ("ValueError('b' * 300)", "ValueError", "len(str(error)) == 300"),
    ("ValueError('b' * 100_000)", "ValueError", "len(error.args[0]) == 100_000"),
    ("ValueError('é: 漢')", "ValueError", "str(error) == 'é: 漢'"),
    ("ValueError('a:b')", "ValueError", "str(error) == 'a:b'"),
    ("ValueError(object)", "ValueError", "'object' in str(error)"),
    ("ExceptionGroup('g', [ValueError('a'), KeyError('b')])", "ExceptionGroup", "error.exceptions[1].args == ('b',)"),
    ("ExceptionGroup('g', [ExceptionGroup('h', [Own('a')])])", "ExceptionGroup", "error.message == 'g'"),
    ("ExceptionGroup('g', [ValueError('a')])", "Exception", "len(error.subgroup(ValueError).exceptions) == 1"),
    ("b'\\xff'.decode()", "UnicodeDecodeError", "(error.start, error.end, error.encoding) == (0, 1, 'utf-8')"),
    ("'é'.encode('ascii')", "UnicodeEncodeError", "error.object == 'é'"),
    ("open('/missing')", "FileNotFoundError", "error.filename == '/missing' and error.errno == 2"),
    ("open('/missing')", "OSError", "'No such file' in str(error)"),
    ("OSError('plain')", "OSError", "str(error) == 'plain'"),
    ("StopIteration(7)", "StopIteration", "error.value == 7"),
    ("int('x')", "ValueError", "'invalid literal' in str(error)"),
    ("1 // 0", "ZeroDivisionError", "isinstance(error, ArithmeticError)"),
    ("[][1]", "LookupError", "isinstance(error, IndexError)"),
    ("nothing", "NameError", "'nothing' in str(error)"),
    ("None.x", "AttributeError", "'NoneType' in str(error)"),
    ("compile('(', 'x', 'exec')", "SyntaxError", "error.filename == 'x'"),
    ("(lambda g: g(g))(lambda g: g(g))", "RecursionError", "isinstance(error, RuntimeError)"),
    ("__import__('no_such_module')", "ModuleNotFoundError", "'no_such_module' in str(error)"),
    ("Own('x')", "ValueError", "type(error).__name__ == 'Own' and str(error) == 'x'"),
    ("Both('x')", "KeyError", "isinstance(error, ValueError)"),
    ("Both('x')", "ValueError", "error.args == ('x',)"),
    ("Says(5, 3)", "ValueError", "str(error) == '5 is too much' and error.args == (5, 3)"),
    ("Broken()", "ValueError", "error.args == ()"),
    ("__import__('decimal').Decimal('x')", "ArithmeticError", "True"),
    ("__import__('json').loads('x')", "ValueError", "'Expecting value' in str(error)"),
    ("TimeoutError()", "TimeoutError", "isinstance(error, OSError)"),
    ("AssertionError('no')", "AssertionError", "str(error) == 'no'"),
    ("NotImplementedError", "NotImplementedError", "error.args == ()"),
    ("UserWarning('w')", "Warning", "str(error) == 'w'"),
]
"""What a candidate raises, the class that a test expects, and what it finds."""

_ALIASED = [
    ("def f(a, b):\n    a.append(1)\n    return len(b)", "x = []\n    assert candidate(x, x) == 1"),
    ("def f(a, b):\n    a.append(1)\n    return len(b)", "assert candidate([], []) == 0"),
    ("def f(a, *, b):\n    return a is b", "x = [1]\n    assert candidate(x, b=x) is True\n    assert candidate([1], b=[1]) is False"),
    ("def f(m):\n    m[0].append(1)\n    return len(m[1])", "row = []\n    assert candidate([row, row]) == 1"),
    ("def f(m): m[0].append(1)", "row = []\n    rows = [row, row]\n    candidate(rows)\n    assert row == [1] and rows == [[1], [1]]"),
    ("def f(d): return d['a'] is d['b']", "x = {}\n    assert candidate({'a': x, 'b': x})"),
    ("def f(t): return t[0] is t[1]", "x = {1}\n    assert candidate((x, x))"),
    ("def f(x):\n    n = 0\n    while x: x, n = x[0], n + 1\n    return n", "x = []\n    for _ in range(240): x = [x]\n    assert candidate(x) == 240"),
    ("def f(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x", "x = candidate(240)\n    n = 0\n    while x: x, n = x[0], n + 1\n    assert n == 240"),
    ("from collections import namedtuple\ndef f(): return namedtuple('P', 'class b', rename=True)(1, 2)", "assert candidate()._0 == 1 and candidate().b == 2"),
    ("# -*- coding: latin-1 -*-\ndef f(): return 'é'", "assert candidate() == 'é'"),
    ("\ufeffdef f(): return 1", "assert candidate() == 1"),
    ("def f(x): return range(x)", "assert list(candidate(3)) == [0, 1, 2]"),
]  # fmt: skip


def _right() -> list[tuple[str, str]]:
    rows = []
    for raised, kind, condition in EXCEPTIONS:
        test = f"    try:\n        candidate({raised!r})\n    except {kind} as error:\n        assert {condition}\n    else:\n        assert False\n"
        rows.append((_RAISED, f"def check(candidate):\n{test}"))
    rows += [(code, f"def check(candidate):\n    {test}\n") for code, test in _ALIASED]
    return rows


RIGHT = _right()


_MANY = """def check(candidate):
    xs = {xs}
    for x in xs:
        try:
            got = candidate(x, 1, k=(2,))
        except {error} as error:
            assert x < 0 and error.args == (x,)
        else:
            assert got == [x, 1, (2,)]
    good = [x for x in xs if x >= 0]
    assert list(map(candidate, good)) == [[x] for x in good]
"""


def _many_right(count: int) -> list[tuple[str, str]]:
    """Return right answers with tests that call them in many ways."""
    rng, rows = random.Random(41), list(RIGHT)
    while len(rows) < count:
        xs = [rng.randrange(-50, 50) for _ in range(rng.randrange(1, 8))]
        error = rng.choice(["ValueError", "TypeError", "KeyError", "IndexError", "RuntimeError", "StopIteration", "OSError"])
        code = f"def f(x, *more, **named):\n    if x < 0: raise {error}(x)\n    return [x, *more, *named.values()]\n"
        rows.append((code, _MANY.format(xs=xs, error=error)))
    return rows


def test_the_right_answers_are_right_in_one_process() -> None:
    for code, tests in _many_right(200):
        namespace: dict[str, Any] = {"__name__": "candidate"}
        exec(code.removeprefix("\ufeff"), namespace)  # noqa: S102
        checks: dict[str, Any] = {}
        exec(tests, checks)  # noqa: S102
        checks["check"](namespace["f"])


@pytest.mark.slow
async def test_tests_see_the_exceptions_and_arguments_that_one_process_would_show(judge: CodeJudge) -> None:
    verdicts = await _all(judge, RIGHT)
    assert [(row, verdict.problem) for row, verdict in zip(RIGHT, verdicts, strict=True) if not verdict.ok] == []


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_thousand_right_answers_pass(judge: CodeJudge) -> None:
    rows = _many_right(1_000)
    verdicts = await _all(judge, rows)
    assert [(row, verdict.problem) for row, verdict in zip(rows, verdicts, strict=True) if not verdict.ok] == []
