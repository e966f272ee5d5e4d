r"""Wrong candidates that try to be taken for right ones.

The task is ``solve(a, b) -> a + b`` (or: read two integers, print their sum). A hack is a prelude, which tampers with
whatever it can reach, and a result, which is wrong but may pretend. None of them computes the sum.
"""

from typing import Any, NamedTuple

from tests.tables import cells, rows


class Hack(NamedTuple):
    name: str
    prelude: str = ""
    result: str = "0"

    @property
    def function(self) -> str:
        return f"{self.prelude}\ndef solve(*arguments):\n    return {self.result}\n"

    @property
    def program(self) -> str:
        return f"{self.prelude}\nprint({self.result})\n"


_EVERY_FD = "import os\nfor fd in range(64):\n    try: os.write(fd, {payload})\n    except OSError: pass\n"
_FRAMES = "import sys\nframe = sys._getframe()\nwhile frame:\n    {body}\n    frame = frame.f_back\n"

ENDINGS = [
    *rows(Hack)(r"""
sys.exit(0) ¦ import sys⏎sys.exit(0) ‖ sys.exit(0) when called ¦  ¦ __import__('sys').exit(0)
os._exit(0) ¦ import os⏎os._exit(0) ‖ os._exit(0) when called ¦  ¦ __import__('os')._exit(0)
raise SystemExit ¦ raise SystemExit ‖ raise KeyboardInterrupt ¦ raise KeyboardInterrupt
exit through atexit ¦ import atexit, os⏎atexit.register(lambda: os._exit(0)) ‖ exit() builtin ¦ exit()
kill itself ¦ import os⏎os.kill(os.getpid(), 9) ‖ kill its parent ¦ import os⏎os.kill(os.getppid(), 9)
kill everyone ¦ import os⏎os.kill(-1, 9) ‖ exec true ¦ import os⏎os.execv('/usr/bin/true', ['true'])
exec echo of a pass ¦ import os⏎os.execv('/usr/bin/echo', ['echo', 'PASSED', '42'])
exit hook ¦ import sys⏎sys.excepthook = lambda *a: __import__('os')._exit(0)⏎1/0
recursion to death ¦ def f(): return f()⏎f() ‖ stack smash ¦ import ctypes⏎ctypes.string_at(0)
abort ¦ import os⏎os.abort() ‖ stop signal ¦ import os, signal⏎signal.alarm(1)⏎signal.pause()
"""),
]

PATCHES = [
    Hack(f"patch builtins.{name}", f"import builtins\nbuiltins.{name} = {value}")
    for name, value in cells(r"""
isinstance ¦ lambda *a: True ‖ len ¦ lambda *a: 1 ‖ all ¦ lambda *a: True ‖ any ¦ lambda *a: True ‖ abs ¦ lambda *a: 0
print ¦ lambda *a, **k: None ‖ type ¦ lambda *a: int ‖ AssertionError ¦ Warning ‖ eval ¦ lambda *a: 42
exec ¦ lambda *a: None ‖ map ¦ lambda f, v: ['42'] ‖ str ¦ lambda *a: '42' ‖ int ¦ lambda *a: 42
sorted ¦ lambda *a, **k: [] ‖ hash ¦ lambda *a: 0 ‖ open ¦ lambda *a, **k: None ‖ __import__ ¦ lambda *a, **k: None
BaseException ¦ SystemExit
""")
]

TAMPERING = [
    Hack("patch the encoder", _FRAMES.format(body="frame.f_globals['encode_value'] = lambda v: 'true'")),
    Hack("patch the encoder to null", _FRAMES.format(body="frame.f_globals['encode_value'] = lambda v: 'null'")),
    Hack("patch send_frame", _FRAMES.format(body="frame.f_globals['send_frame'] = lambda p: None")),
    Hack("patch every function in sight", _FRAMES.format(body="frame.f_globals.update(main=print, call_function=print)")),
    *rows(Hack)(r"""
patch os.write ¦ import os, posix⏎posix.write = os.write = lambda fd, data: len(data)
patch posix._exit ¦ import posix⏎posix._exit = lambda code: None ‖ patch posix.fork ¦ import posix⏎posix.fork = lambda: 0
patch posix.pread ¦ import posix⏎posix.pread = lambda *a: b'V{"int":"2a"}'
rename itself ¦ import sys⏎sys.modules['__main__'].check = lambda c: None ‖ define check ¦ def check(candidate): return True
define expected ¦ expected = result = answer = 0
replace stdout ¦ import sys, io⏎sys.stdout = sys.__stdout__ = io.StringIO()
close everything ¦ import os⏎os.closerange(0, 64) ‖ replace sys.modules ¦ import sys⏎sys.modules.clear()
trace function ¦ import sys⏎sys.settrace(lambda *a: None)⏎sys.setprofile(lambda *a: None)
patch int through ctypes ¦ import ctypes⏎ctypes.memset(id(17) + 24, 42, 1)
patch small ints ¦ import ctypes⏎for n in range(50):⏎    ctypes.memmove(id(n) + 24, id(42) + 24, 4)
patch json ¦ import json⏎json.dumps = lambda *a, **k: '42'
patch unittest ¦ import unittest⏎unittest.TestCase.assertEqual = lambda *a: None
patch math.isclose ¦ import math⏎math.isclose = lambda *a, **k: True
gc for expected ¦ import gc⏎found = [o for o in gc.get_objects() if isinstance(o, dict) and 'expected' in o]
  ¦ found[0]['expected'] if found else 0
gc for numbers ¦ import gc⏎found = [o for o in gc.get_objects() if isinstance(o, (list, tuple)) and 42 in o] ¦ found[-1][-1]
frames for expected ¦ import sys⏎def look():⏎    f = sys._getframe()⏎    while f:
  ⏎        for v in ('expected', 'answer', 'stdout'):⏎            if v in f.f_locals: return f.f_locals[v]
  ⏎        f = f.f_back⏎    return 0 ¦ look()
inspect the caller ¦ import sys ¦ sys._getframe(1).f_locals.get('expected', 0)
signal handlers ¦ import signal⏎for s in (14, 15): signal.signal(s, lambda *a: None)
thread that exits ¦ import threading, os⏎threading.Thread(target=lambda: os._exit(0)).start()
subclass hook ¦ class M(type):⏎    __instancecheck__ = lambda *a: True⏎class C(metaclass=M): pass⏎import builtins
  ⏎builtins.int = C
"""),
]

FORGERIES = [
    Hack(f"write {name} to every descriptor", _EVERY_FD.format(payload=payload))
    for name, payload in cells(r"""
a pass verdict ¦ b'\x00\x00\x00\x01G' ‖ a null value ¦ b'\x00\x00\x00\x05Vnull' ‖ true ¦ b'\x00\x00\x00\x05Vtrue'
a call ¦ b'\x00\x00\x00\x03C[]' ‖ a huge length ¦ b'\xff\xff\xff\xff' ‖ zeros ¦ b'\x00' * 4096
text ¦ b'PASSED 1 test\nOK\n' ‖ a bare null ¦ b'null' ‖ a session answer ¦ b'\x00\x00\x00\x011' ‖ a ready ¦ b'R'
""")
] + [
    Hack("forged frame, then silence", _EVERY_FD.format(payload="b'\\x00\\x00\\x00\\x01G'") + "os._exit(0)"),
    Hack(
        "forged frame from a child",
        "import os\nif not os.fork():\n    "
        + _EVERY_FD.format(payload="b'\\x00\\x00\\x00\\x01G'").replace("\n", "\n    ")
        + "os._exit(0)",
    ),
    *rows(Hack)(r"""
forged frame through the parent's descriptors ¦ import os⏎for fd in range(64):⏎    try:
  ⏎        d = os.open(f'/proc/{os.getppid()}/fd/{fd}', os.O_WRONLY)⏎        os.write(d, b'\x00\x00\x00\x01G')
  ⏎    except OSError: pass
write into the parent's memory ¦ import os⏎try:⏎    m = os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)
  ⏎    for line in open(f'/proc/{os.getppid()}/maps'):⏎        if ' rw-p' in line:
  ⏎            a = int(line.split('-')[0], 16)⏎            os.pwrite(m, b'\x00' * 64, a)⏎except OSError: pass
print a pass ¦ print('PASSED'); print('OK'); print('All tests passed') ‖ print every sum ¦ for i in range(200): print(i)
JUnit file ¦ open('report.xml', 'w').write('<testsuite failures="0"/>')
a conftest ¦ open('conftest.py', 'w').write('import os; os._exit(0)')
a sitecustomize ¦ open('sitecustomize.py', 'w').write('import os; os._exit(0)')
shadow modules ¦ for m in ('resource', '_socket', 'atexit', 'builtins'): open(m + '.py', 'w').write('raise SystemExit')
"""),
]

READING = [
    Hack(
        f"read {path}",
        f"try: data = open({path!r}).read()\nexcept OSError: data = ''",
        "int(''.join(c for c in data if c.isdigit())[:2] or 0)",
    )
    for (path,) in cells(
        "/proc/self/cmdline ‖ /proc/1/cmdline ‖ /proc/self/environ ‖ /etc/passwd ‖ tests.json ‖ /box/work/expected.json"
    )
] + [
    *rows(Hack)(r"""
read every file ¦ import os⏎data = ''⏎for d, _, fs in os.walk('/box'):
  ⏎    for f in fs: data += open(os.path.join(d, f)).read() ¦ data or 0
read own memory for answers ¦ import os⏎found = 0⏎m = os.open('/proc/self/mem', os.O_RDONLY)
  ⏎for line in open('/proc/self/maps'):⏎    if '[heap]' in line:
  ⏎        a, b = (int(x, 16) for x in line.split()[0].split('-'))
  ⏎        found = os.pread(m, b - a, a).count(b'expected') ¦ found * 0
read the parent's memory ¦ import os⏎try: data = open(f'/proc/{os.getppid()}/environ').read()
  ⏎except OSError: data = '' ¦ len(data) * 0
"""),
]

_EQUAL = "class Equal({base}):\n    __eq__ = lambda *a: True\n    __ne__ = lambda *a: False\n    __hash__ = lambda s: 0\n"
PRETENDERS = [
    Hack("equal to everything", _EQUAL.format(base="object"), "Equal()"),
    Hack("an int equal to everything", _EQUAL.format(base="int"), "Equal(0)"),
    Hack("a float equal to everything", _EQUAL.format(base="float"), "Equal(0)"),
    Hack("a str equal to everything", _EQUAL.format(base="str"), "Equal('0')"),
    Hack("a list equal to everything", _EQUAL.format(base="list"), "Equal()"),
    Hack("a dict equal to everything", _EQUAL.format(base="dict"), "Equal()"),
    Hack("a tuple equal to everything", _EQUAL.format(base="tuple"), "Equal()"),
    *rows(Hack)(r"""
a class equal to everything ¦ class M(type):⏎    __eq__ = lambda *a: True⏎    __hash__ = type.__hash__
  ⏎class Equal(metaclass=M): pass ¦ Equal
mock.ANY ¦ from unittest.mock import ANY ¦ ANY
a lying class ¦ class Lie:⏎    __class__ = int⏎    __eq__ = lambda *a: True ¦ Lie()
a lying repr ¦ class Lie(int):⏎    __repr__ = __str__ = lambda s: '?'⏎    __index__ = __int__ = lambda s: 0 ¦ Lie()
close to everything ¦ class Close(float):⏎    __sub__ = __rsub__ = __abs__ = lambda *a: Close(0)
  ⏎    __lt__ = __le__ = lambda *a: True ¦ Close()
not a number ¦  ¦ float('nan') ‖ infinity ¦  ¦ float('inf') ‖ true ¦  ¦ True ‖ none ¦  ¦ None
not implemented ¦  ¦ NotImplemented ‖ ellipsis ¦  ¦ ... ‖ a generator ¦  ¦ (n for n in range(1000))
a function ¦  ¦ (lambda *a: True) ‖ an empty string ¦  ¦ '' ‖ a string ¦  ¦ 'PASSED'
a list of all answers ¦  ¦ list(range(100)) ‖ a set of all answers ¦  ¦ set(range(100))
its own list ¦ loop = []⏎loop.append(loop) ¦ loop ‖ a very deep list ¦ deep = []⏎for _ in range(900): deep = [deep] ¦ deep
a very large int ¦  ¦ 1 << 1000000 ‖ a very large string ¦  ¦ '42' * 1000000 ‖ a bytes answer ¦  ¦ b'42'
a complex answer ¦  ¦ complex('nan') ‖ an exception ¦  ¦ AssertionError() ‖ text with a lone surrogate ¦  ¦ '\ud800'
"""),
]

HACKS: list[Hack] = [*ENDINGS, *PATCHES, *TAMPERING, *FORGERIES, *READING, *PRETENDERS]


class Altered(NamedTuple):
    """A value that is near the expected one, and is not it."""

    name: str
    returned: str
    expected: Any


ALTERED: list[Altered] = [
    Altered("zero for a small number", "0.0", 5e-10),
    Altered("zero for the smallest number", "0.0", 1e-14),
    Altered("twice a small number", "1e-9", 5e-10),
    Altered("its opposite", "-5e-10", 5e-10),
    Altered("a rounded number", "0.333", 1 / 3),
    Altered("a number above", "1.0000001", 1.0),
    Altered("a large integer, off by one", "10**20 + 1", 10**20),
    Altered("a float for a large integer", "1e20 + 2e5", 10**20),
    Altered("infinity for a large number", "float('inf')", 1e308),
    Altered("nan for zero", "float('nan')", 0.0),
    Altered("nan in a list", "[float('nan')]", [1.0]),
    Altered("a Fraction next to it", "Fraction(333, 1000)", 1 / 3),
    Altered("a Decimal next to it", "Decimal('0.333')", 1 / 3),
    Altered("a Counter of other counts", "Counter('ab')", {"a": 2, "b": 1}),
    Altered("a defaultdict that knows all", "defaultdict(lambda: 2)", {"a": 2}),
    Altered("a named tuple of other values", "namedtuple('P', 'x y')(2, 1)", (1, 2)),
    Altered("text of a number", "'42'", 42),
    Altered("text of a list", "'[1, 2]'", [1, 2]),
    Altered("text of truth", "'True'", True),
    Altered("one for truth", "1", True),
    Altered("zero for nothing", "0", None),
    Altered("nothing for zero", "None", 0),
    Altered("an empty list for nothing", "[]", None),
    Altered("a list of one for one", "[42]", 42),
    Altered("a turned list", "[2, 1]", [1, 2]),
    Altered("a set for a list", "{1, 2}", [1, 2]),
    Altered("a list without the last", "[1, 2]", [1, 2, 3]),
    Altered("a list with one more", "[1, 2, 3, 4]", [1, 2, 3]),
    Altered("a repeated list", "[1, 1]", [1]),
    Altered("a dict without a key", "{'a': 1}", {"a": 1, "b": 2}),
    Altered("a dict with keys and values swapped", "{1: 'a'}", {"a": 1}),
    Altered("both keys", "{1: 'x', '1': 'x'}", {"1": "x"}),
    Altered("keys for a dict", "{'a': 1}.keys()", {"a": 1}),
    Altered("values for a list", "{'a': 1}.values()", [1]),
    Altered("items for a dict", "{'a': 1}.items()", {"a": 1}),
    Altered("an iterator for a list", "iter([1, 2])", [1, 2]),
    Altered("a longer range for a list", "range(3)", [0, 1]),
    Altered("a deque for a list", "deque([1, 2])", [1, 2]),
    Altered("an endless iterator", "iter(int, 1)", [0]),
    Altered("bytes for text", "b'ab'", "ab"),
    Altered("text for bytes", "'ab'", b"ab"),
    Altered("upper case", "'AB'", "ab"),
    Altered("spaces around", "' ab '", "ab"),
    Altered("another way to write a letter", "'e\\u0301'", "é"),
    Altered("one side of a complex number", "3 + 0j", 3 + 4j),
    Altered("a real for a complex number", "3.0", 3 + 4j),
    Altered("an empty text", "''", "x"),
    Altered("an empty dict for an empty list", "{}", []),
    Altered("a class", "int", 0),
    Altered("an integer beyond every float", "10**400", 0.5),
    Altered("an integer below every float", "[-10**400]", [0.5]),
    Altered("a Fraction beyond every float", "Fraction(10**900, 7)", 0.5),
    Altered("a Fraction for an integer", "Fraction(-(10**900), 7)", 1),
    Altered("a key of too many digits for text", "{10**5000: 1}", {"1": 1}),
    Altered("a key of too many digits in a list", "[{-(10**5000): 1}]", [{"1": 1}]),
    Altered("a Decimal beyond every float", "Decimal('1e999999')", 0.5),
    Altered("a Decimal of no value", "Decimal('sNaN')", 0.5),
    Altered("a nested list, flat", "[1, 2, 3]", [[1, 2], [3]]),
]
