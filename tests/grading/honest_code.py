"""Right candidates in the forms that people and models write them, each with a test that a plain ``exec`` would pass.

Left out, because the candidate and the tests live in different boxes and only plain values pass between them:

- functions, classes, generators that are fed (``send``), files and objects of a candidate's own class, returned to the tests or
  handed to the candidate;
- identity: ``candidate(x) is x``;
- changes to an argument by a call that also returns a value: they would let a candidate change what it is compared with;
- state that one call leaves for the next: each call is answered by a fresh process;
- what the tests read from the candidate's module other than the function under test.
"""

from typing import NamedTuple

from tests.tables import rows

_IMPORTS = "from collections import *\nfrom fractions import Fraction\nfrom decimal import Decimal\nfrom enum import *\n"


class Honest(NamedTuple):
    """A right candidate, and test code in terms of ``f``."""

    code: str
    check: str

    @property
    def tests(self) -> str:
        lines = "".join(f"    {line}\n" for line in self.check.split("\n"))
        return f"{_IMPORTS}def check(f):\n{lines}"


def _returns(value: str, check: str) -> Honest:
    return Honest(f"{_IMPORTS}def solve(*a, **k):\n    return {value}\n", check)


RETURNED = [
    *rows(_returns)(r"""
Counter('abca') ¦ assert f() == Counter('abca') ‖ Counter('abca') ¦ assert f() == {'a': 2, 'b': 1, 'c': 1}
Counter('abca') ¦ assert f().most_common(1) == [('a', 2)] ‖ Counter() ¦ assert f()['nothing'] == 0
defaultdict(list, {1: [2]}) ¦ assert f() == {1: [2]} ‖ defaultdict(list, {1: [2]}) ¦ assert f()['missing'] == []
defaultdict(lambda: 7, {1: [2]}) ¦ assert f() == {1: [2]} ‖ OrderedDict(b=1, a=2) ¦ assert list(f()) == ['b', 'a']
OrderedDict(b=1, a=2) ¦ assert f() == OrderedDict(b=1, a=2)
[OrderedDict(b=1, a=2), x := OrderedDict(b=1, a=2), x.move_to_end('b')][1] ¦ assert list(f()) == ['a', 'b']
namedtuple('Point', 'x y')(1, 2) ¦ assert f() == (1, 2)
namedtuple('Point', 'x y')(1, 2) ¦ assert f().x == 1 and f().y == 2
[namedtuple('Point', 'x y')(1, 2)] ¦ assert f() == [(1, 2)] ‖ Fraction(1, 3) ¦ assert f() == Fraction(1, 3)
Fraction(-4, 2) ¦ assert f() == -2 ‖ Decimal('0.1') + Decimal('0.2') ¦ assert f() == Decimal('0.3')
Decimal('1e400') ¦ assert f() == Decimal('1e400') ‖ Decimal('NaN') ¦ assert f().is_nan()
IntEnum('Color', 'RED BLUE').BLUE ¦ assert f() == 2 ‖ IntFlag('Perm', 'R W')(3) ¦ assert f() == 3
type('S', (str,), {})('x') ¦ assert f() == 'x'
StrEnum('Name', {'A': 'a'}).A if 'StrEnum' in globals() else 'a' ¦ assert f() == 'a'
bytearray(b'ab') ¦ assert f() == b'ab' ‖ bytearray(b'ab') ¦ assert f() == bytearray(b'ab')
memoryview(b'ab').tobytes() ¦ assert f() == b'ab' ‖ range(3) ¦ assert list(f()) == [0, 1, 2]
range(3) ¦ assert f() == range(3) and 2 in f() and len(f()) == 3 ‖ range(10, 0, -3) ¦ assert f()[1] == 7
map(str, [1, 2]) ¦ assert list(f()) == ['1', '2'] ‖ filter(None, [0, 1, 2]) ¦ assert list(f()) == [1, 2]
zip([1, 2], 'ab') ¦ assert dict(f()) == {1: 'a', 2: 'b'} ‖ reversed([1, 2]) ¦ assert list(f()) == [2, 1]
enumerate('ab') ¦ assert list(f()) == [(0, 'a'), (1, 'b')] ‖ iter([1, 2]) ¦ assert next(f()) == 1
(n * n for n in range(3)) ¦ assert sum(f()) == 5 and list(f()) == [0, 1, 4]
{'a': 1}.keys() ¦ assert f() == {'a'} and list(f()) == ['a']
{'a': 1}.values() ¦ assert list(f()) == [1] and sorted(f()) == [1]
{'a': 1}.items() ¦ assert list(f()) == [('a', 1)] and dict(f()) == {'a': 1}
deque([1, 2]) ¦ assert f() == deque([1, 2]) and list(f()) == [1, 2] and f()[0] == 1
sorted({3, 1, 2}) ¦ assert f() == [1, 2, 3] ‖ frozenset([1]) ¦ assert f() == {1}
{frozenset([1]): (2, [3])} ¦ assert f() == {frozenset([1]): (2, [3])}
{1: 'a', (2, 3): None} ¦ assert f() == {1: 'a', (2, 3): None} ‖ float('inf') ¦ assert f() == float('inf')
float('nan') ¦ assert f() != f() ‖ -0.0 ¦ assert f() == 0 ‖ 2 ** 200 ¦ assert f() == 2 ** 200
'é漢\ud800' ¦ assert f() == 'é漢\ud800' ‖ 3 + 4j ¦ assert abs(f()) == 5 ‖ None ¦ assert f() is None
True ¦ assert f() is True ‖ type('L', (list,), {})([1]) ¦ assert f() == [1]
type('D', (dict,), {})(a=1) ¦ assert f() == {'a': 1} ‖ list(range(50_000)) ¦ assert len(f()) == 50_000
'x' * 1_000_000 ¦ assert len(f()) == 1_000_000 ‖ [[]] * 5000 ¦ assert f() == [[]] * 5000
"""),
]
"""Values of every plain kind, and what a test may do with them."""

_RAISES = "try:\n    f({argument})\nexcept {error}:\n    pass\nelse:\n    assert False"
_OWN = "class Own({base}): pass\ndef solve(n):\n    if n < 0: raise Own('negative')\n    return n"

CALLED = [
    Honest(
        "def solve(n):\n    if n < 0: raise ValueError('negative')\n    return n",
        _RAISES.format(argument="-1", error="ValueError"),
    ),
    Honest("def solve(n): return 1 // n", _RAISES.format(argument="0", error="ZeroDivisionError")),
    Honest("def solve(n): return 1 // n", _RAISES.format(argument="0", error="ArithmeticError")),
    Honest("def solve(n): return {}[n]", _RAISES.format(argument="'x'", error="KeyError")),
    Honest("def solve(n): return [][n]", _RAISES.format(argument="0", error="(KeyError, IndexError)")),
    Honest("def solve(n): return n + 'x'", _RAISES.format(argument="1", error="TypeError")),
    Honest("def solve(n): raise NotImplementedError", _RAISES.format(argument="1", error="NotImplementedError")),
    Honest("def solve(n): return b'\\xff'.decode()", _RAISES.format(argument="1", error="UnicodeDecodeError")),
    Honest("def solve(n): raise StopIteration", _RAISES.format(argument="1", error="StopIteration")),
    Honest(_OWN.format(base="ValueError"), _RAISES.format(argument="-1", error="ValueError")),
    Honest(_OWN.format(base="Exception"), _RAISES.format(argument="-1", error="Exception")),
    *rows(Honest)(r"""
def solve(a, b=2): return a * b ¦ assert f(3, b=4) == 12 and f(a=3) == 6 and f(b=1, a=5) == 5
def solve(*, n): return n ¦ assert f(n=3) == 3 ‖ def solve(*a, **k): return a, k ¦ assert f(1, x=2) == ((1,), {'x': 2})
def solve(a, /, b): return a - b ¦ assert f(3, b=1) == 2 ‖ def solve(v): v.sort() ¦ x = [3, 1, 2]⏎f(x)⏎assert x == [1, 2, 3]
def solve(v): v.append(4) ¦ x = [1]⏎assert f(x) is None⏎assert x == [1, 4]
def solve(v): v.clear() ¦ x = [1]⏎f(x)⏎assert x == [] ‖ def solve(d): d['k'] = [1] ¦ x = {}⏎f(x)⏎assert x == {'k': [1]}
def solve(s): s.discard(1) ¦ x = {1, 2}⏎f(x)⏎assert x == {2}
def solve(b): b[0] = 65 ¦ x = bytearray(b'b')⏎f(x)⏎assert x == b'A'
def solve(m):⏎    for row in m: row.reverse() ¦ x = [[1, 2], [3, 4]]⏎row = x[0]⏎f(x)⏎assert x == [[2, 1], [4, 3]]
  ⏎assert row == [2, 1]
def solve(*, v): v.sort() ¦ x = [2, 1]⏎f(v=x)⏎assert x == [1, 2]
def solve(v): v[:] = v[1:] ¦ x = [2, 1]⏎f(x)⏎assert x == [1]
def solve(n): raise ValueError('negative: %d' % n) ¦ try:⏎    f(-1)⏎except ValueError as error:
  ⏎    assert 'negative: -1' in str(error)⏎else:⏎    assert False
def solve(n): raise ValueError(n) ¦ import unittest⏎with unittest.TestCase().assertRaises(ValueError):⏎    f(1)
def solve(f): return f['x'] ¦ assert f(Counter('xx')) == 2
def solve(c): return c.most_common(1) ¦ assert f(Counter('xx')) == [('x', 2)]
def solve(q): return q.popleft() ¦ assert f(deque([1, 2])) == 1
def solve(x): return x.numerator ¦ assert f(Fraction(3, 4)) == 3
def solve(x): return x.quantize(x) ¦ assert f(Decimal('1.50')) == Decimal('1.5')
def solve(r): return sum(r) ¦ assert f(range(4)) == 6 and f(n for n in [1, 2]) == 3 ‖ def solve(): pass ¦ assert f() is None
solve = lambda x: x + 1 ¦ assert f(1) == 2
from functools import lru_cache⏎@lru_cache⏎def solve(x): return x ¦ assert f(1) == 1
from functools import partial⏎solve = partial(pow, 2) ¦ assert f(3) == 8
class solve:⏎    def __new__(cls, x): return x ¦ assert f(3) == 3
async def inner(): return 1⏎def solve():⏎    import asyncio⏎    return asyncio.run(inner()) ¦ assert f() == 1
def solve(n): return n if n < 2 else solve(n - 1) + solve(n - 2) ¦ assert f(10) == 55
def solve(x): return x / 3 ¦ assert abs(f(1) - 0.333333) < 1e-5
"""),
]
"""Tests that call with keywords, expect an exception, or look at what was changed in place."""

_MAIN = 'def solve(a, b): return a + b\nif __name__ == "__main__":\n    '
ADDED = [
    f"{_MAIN}a, b = map(int, input().split())\n    print(solve(a, b))",
    f"import unittest\nclass T(unittest.TestCase):\n    def test(self): assert solve(1, 2) == 3\n{_MAIN}unittest.main()",
    f"import sys\n{_MAIN}sys.exit(solve(1, 2))",
    f"import argparse\n{_MAIN}argparse.ArgumentParser().parse_args(['--wrong'])",
    f"import sys\n{_MAIN}print(solve(int(sys.argv[1]), 2))",
    f"import doctest\n{_MAIN}doctest.testmod()",
    f"{_MAIN}raise SystemExit('usage')",
    f"{_MAIN}exit()",
    f"{_MAIN}while True: pass",
    f"{_MAIN}assert solve(1, 2) == 3\n    print('all tests passed')",
    "def solve(a, b): return a + b\nprint(solve(1, 2))",
    "import logging\nlogging.basicConfig()\nlogging.warning('hello')\ndef solve(a, b): return a + b",
    "from __future__ import annotations\nfrom typing import *\ndef solve(a: int, b: Optional[int]) -> int: return a + b",
    "from dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\ndef solve(a, b): return P(a).a + b",
    "import typing\nclass N(typing.NamedTuple):\n    a: int\ndef solve(a, b): return N(a).a + b",
    "import pickle\nclass P: pass\ndef solve(a, b):\n    pickle.loads(pickle.dumps(P()))\n    return a + b",
    "import sys\nsys.setrecursionlimit(10_000)\ndef solve(a, b): return a if b == 0 else solve(a + 1, b - 1)",
    "def solve(a, b):\n    print('debugging', a, b)\n    return a + b",
    "def helper(x): return x\nclass Solution:\n    def add(self, a, b): return helper(a) + b\nsolve = Solution().add",
    "import os, sys, re, math, json, random, itertools, functools, string, heapq, bisect\ndef solve(a, b): return a + b",
    "try:\n    import numpy_that_is_not_there\nexcept ImportError: pass\ndef solve(a, b): return a + b",
    "def solve(a, b):\n    '''>>> solve(1, 2)\n    3\n    '''\n    return sum((a, b))",
    "global_cache = {}\ndef solve(a, b):\n    global_cache[a, b] = a + b\n    return global_cache[a, b]",
    "from concurrent.futures import ThreadPoolExecutor as T\ndef solve(a, b):\n"
    "    with T() as pool: return pool.submit(lambda: a + b).result()",
    "x = __name__\ndef solve(a, b): return a + b\nif x == '__main__': raise SystemExit(1)",
]
"""``solve(a, b)`` adds. They pass every kind of judge that calls a function."""

PROGRAMS = [
    "print(sum(map(int, input().split())))",
    "import sys\nprint(sum(map(int, sys.stdin.read().split())))",
    "import sys\na, b = map(int, sys.stdin.readline().split())\nsys.stdout.write(str(a + b))",
    "def main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    main()",
    "import sys\ndef main():\n    print(sum(map(int, input().split())))\nif __name__ == '__main__':\n    sys.exit(main())",
    "import sys\nprint(sum(map(int, input().split())))\nsys.exit(3)",
    "print(sum(map(int, input().split())))\nexit()",
    "import threading\nthreading.stack_size(2**25)\ndef main(): print(sum(map(int, input().split())))\n"
    "t = threading.Thread(target=main)\nt.start()\nt.join()",
    "a, b = map(int, open(0).read().split())\nprint(a + b)",
    "import fileinput\nfor line in fileinput.input(): print(sum(map(int, line.split())))",
    "import os\nos.write(1, str(sum(map(int, os.read(0, 100).split()))).encode())",
    "import sys\nprint(sum(map(int, input().split())), file=sys.stdout, flush=True)\nprint('note', file=sys.stderr)",
    "import argparse\nargparse.ArgumentParser().parse_args([])\nprint(sum(map(int, input().split())))",
    "import atexit\nv = sum(map(int, input().split()))\natexit.register(print, v)",
    "try:\n    while True: print(sum(map(int, input().split())))\nexcept EOFError: pass",
    "print(*[sum(map(int, input().split()))], sep='', end=' \\n\\n')",
]
"""They read two numbers and print their sum."""

JSON_VALUES = [
    ("{1: 2}", {"1": 2}),
    ("{1.5: 'a', True: 'b', None: 'c'}", {"1.5": "a", "true": "b", "null": "c"}),
    ("{-3: [1, 2]}", {"-3": [1, 2]}),
    ("[{1: (2, 3)}]", [{"1": [2, 3]}]),
    ("(1, 2)", [1, 2]),
    ("2", 2.0),
    ("2.0", 2),
    ("Fraction(1, 2)", 0.5),
    ("Fraction(4, 2)", 2),
    ("Decimal('0.5')", 0.5),
    ("Decimal('3')", 3),
    ("Counter('aab')", {"a": 2, "b": 1}),
    ("namedtuple('P', 'x y')(1, 2)", [1, 2]),
    ("IntEnum('C', 'A B').B", 2),
    ("[(1, 'a'), (2, 'b')]", [[1, "a"], [2, "b"]]),
    ("OrderedDict(a=1)", {"a": 1}),
    ("0.1 + 0.2", 0.3),
    ("0.1 + 0.2 - 0.3", 0.0),
    ("0.0", 5.551115123125783e-17),
    ("None", None),
    ("[]", []),
    ("()", []),
]
"""What a candidate returns, and the value that JSON has for it."""
