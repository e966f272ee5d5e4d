"""Families about programs: a C program that does not build, and a Python package whose tests fail.

The grader copies the agent's files into a fresh shell, runs them on inputs that the agent never saw, and compares the output
outside. So a program can pass only by computing the right values. Only the goal states the version that a program must have, so
no fixed files pass.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from palestra.worlds.terminal.grading import Prints
from palestra.worlds.terminal.scene import Scene, draw, sample, script, text_file

__all__ = ["build", "tests"]

_OLD_VERSION = "1.0.0"


def _new_version(rng: np.random.Generator) -> str:
    return f"{int(rng.integers(2, 10))}.{int(rng.integers(50))}.{int(rng.integers(1000))}"


class _Operation(NamedTuple):
    """An operation of the C program on a list of numbers."""

    name: str
    about: str
    code: str
    wrong: str
    """The same with a logical fault."""
    value: Callable[[list[int]], int]


_OPERATIONS = (
    _Operation("total", "the sum", "s += v[i];", "s -= v[i];", sum),
    _Operation("largest", "the largest number", "if (i == 0 || v[i] > s) s = v[i];", "if (i == 0 || v[i] < s) s = v[i];", max),
    _Operation(
        "smallest", "the smallest number", "if (i == 0 || v[i] < s) s = v[i];", "if (i == 1 || v[i] < s) s = v[i];", min
    ),
    _Operation(
        "even",
        "how many numbers are even",
        "if (v[i] % 2 == 0) s++;",
        "if (v[i] % 2 == 1) s++;",
        lambda v: sum(x % 2 == 0 for x in v),
    ),
    _Operation("squares", "the sum of the squares", "s += v[i] * v[i];", "s += v[i] * 2;", lambda v: sum(x * x for x in v)),
    _Operation(
        "negative",
        "how many numbers are negative",
        "if (v[i] < 0) s++;",
        "if (v[i] <= 1) s++;",
        lambda v: sum(x < 0 for x in v),
    ),
    _Operation(
        "span",
        "the largest minus the smallest number",
        "if (v[i] > hi) hi = v[i]; if (v[i] < lo) lo = v[i]; s = hi - lo;",
        "if (v[i] > hi) hi = v[i]; s = hi - lo;",
        lambda v: max(v) - min(v),
    ),
)


def _source(operation: _Operation, code: str) -> str:
    return script(
        '#include "tool.h"',
        "",
        f"long {operation.name}(const long *v, int n) {{",
        "    long s = 0, lo = v[0], hi = v[0];",
        "    for (int i = 0; i < n; i++) {",
        f"        {code}",
        "    }",
        "    (void)lo; (void)hi;",
        "    return s;",
        "}",
        "",
    )


def _main(chosen: Sequence[_Operation]) -> str:
    return script(
        "#include <stdio.h>",
        '#include "tool.h"',
        "",
        "int main(void) {",
        "    long v[1000];",
        "    int n = 0;",
        '    while (n < 1000 && scanf("%ld", &v[n]) == 1) n++;',
        '    puts("version " VERSION);',
        *(f'    printf("{operation.name} %ld\\n", {operation.name}(v, n));' for operation in chosen),
        "    return 0;",
        "}",
        "",
    )


def _header(chosen: Sequence[_Operation], version: str) -> str:
    return f'#define VERSION "{version}"\n' + "".join(f"long {operation.name}(const long *v, int n);\n" for operation in chosen)


def build(rng: np.random.Generator, level: int) -> Scene:
    """Mend a C program and set its version: a fault of syntax; also one in the Makefile; also one in the logic."""
    chosen = sample(rng, _OPERATIONS, 2 + level)
    version = _new_version(rng)
    bad = chosen[0]
    good = {f"{operation.name}.c": _source(operation, operation.code) for operation in chosen}
    good["main.c"] = _main(chosen)
    good["tool.h"] = _header(chosen, version)
    objects = " ".join(f"{name[:-2]}.o" for name in sorted(good) if name.endswith(".c"))
    good["Makefile"] = (
        f"CFLAGS = -O1 -Wall\n\ntool: {objects}\n\t$(CC) $(CFLAGS) -o tool {objects}\n\nclean:\n\trm -f *.o tool\n"
    )
    about = "".join(f"{operation.name}: {operation.about}\n" for operation in chosen)
    good["README.md"] = (
        f"`tool` reads whole numbers from its standard input and prints its version and one line per operation:\n\n{about}"
    )
    broken = {**good, "tool.h": _header(chosen, _OLD_VERSION)}
    fault = draw(rng, ("semicolon", "brace", "include", "name"))
    source = broken[f"{bad.name}.c"]
    broken[f"{bad.name}.c"] = {
        "semicolon": source.replace("return s;", "return s"),
        "brace": source.removesuffix("}\n"),
        "include": source.replace('"tool.h"', '"tools.h"'),
        "name": source.replace("long s = 0,", "long sum = 0,"),
    }[fault]
    if level >= 1:
        broken["Makefile"] = broken["Makefile"].replace(f" {chosen[1].name}.o", "")
    if level >= 2:
        broken[f"{chosen[2].name}.c"] = _source(chosen[2], chosen[2].wrong)
    # Each logical fault shows on one of these: ascending, descending, and only even numbers.
    values = sorted({*rng.integers(-50, 100, size=int(rng.integers(5, 30))).tolist(), -7, 0, 1, 8})
    inputs = [values, values[::-1], [8, 4, 2, 6]]
    expected = "".join(
        "".join([f"version {version}\n", *(f"{operation.name} {operation.value(given)}\n" for operation in chosen)])
        for given in inputs
    )
    goal = (
        "The C program in the folder tool does not build with `make`. Mend it so that it builds and does what its README.md "
        f"says, and set VERSION in tool.h to {version}. Keep the name of the program: tool/tool."
    )
    runs = [f"./tool <<< '{' '.join(map(str, given))}'" for given in inputs]
    command = script("cd tool && make -s clean >/dev/null 2>&1; make -s >/dev/null 2>&1", *runs)

    check = Prints(command, expected, "text", ["tool"])
    changed = [name for name in good if good[name] != broken[name]]
    solution = [_put(f"tool/{name}", good[name]) for name in changed]
    files = [text_file(f"tool/{name}", text) for name, text in broken.items()]
    return Scene(goal, files, [check], solution)


def _put(path: str, text: str) -> str:
    return f"cat > {path} <<'END'\n{text.removesuffix(chr(10))}\nEND"


# ------------------------------------------------------------------------------------------------------------------ tests


class _Function(NamedTuple):
    """A function of the Python package, its fault, and inputs for it."""

    name: str
    about: str
    body: str
    wrong: str
    inputs: Callable[[np.random.Generator], list[Any]]


def _numbers(rng: np.random.Generator) -> list[Any]:
    return [rng.integers(-9, 10, size=int(rng.integers(1, 8))).tolist()]


def _words(rng: np.random.Generator) -> list[Any]:
    return [" ".join(draw(rng, ("red", "Blue", "green", "a", "Anna", "level", "x")) for _ in range(int(rng.integers(1, 6))))]


def _number(rng: np.random.Generator) -> list[Any]:
    return [int(rng.integers(1, 400))]


_TOTALS = "total, found = 0, []\n    for one in values:\n        {}\n        {}\n    return found"
_LARGEST = "found = sorted({})\n    return found[-2] if len(found) > 1 else None"
_PLACES = "top = max(values)\n    return [place for place, one in enumerate({}) if one == top]"
_COUNTS = "found = {{}}\n    for word in {}.split():\n        found[word] = found.get(word, 0) + 1\n    return found"
_ROMAN = (
    "found = ''\n    for size, sign in {}:\n        found += sign * (values // size)\n        values %= size\n    return found"
)
_SIGNS = [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]

_FUNCTIONS = (
    _Function(
        "running_totals",
        "Return the sums of the first 1, 2, 3 … numbers.",
        _TOTALS.format("total += one", "found.append(total)"),
        _TOTALS.format("found.append(total)", "total += one"),
        _numbers,
    ),
    _Function(
        "second_largest",
        "Return the second largest different number, or None.",
        _LARGEST.format("set(values)"),
        _LARGEST.format("values"),
        _numbers,
    ),
    _Function(
        "clipped",
        "Return the numbers, each at least -3 and at most 5.",
        "return [max(-3, min(5, one)) for one in values]",
        "return [min(-3, max(5, one)) for one in values]",
        _numbers,
    ),
    _Function(
        "positions_of_largest",
        "Return all positions of the largest number, counted from 0.",
        _PLACES.format("values"),
        _PLACES.format("values, 1"),
        _numbers,
    ),
    _Function(
        "initials",
        "Return the first letters of the words, in upper case.",
        "return ''.join(word[0] for word in values.split()).upper()",
        "return ''.join(word[-1] for word in values.split()).upper()",
        _words,
    ),
    _Function(
        "palindromes",
        "Return the words that read the same backwards; case does not matter.",
        "return [word for word in values.split() if word.lower() == word.lower()[::-1]]",
        "return [word for word in values.split() if word[0] == word[-1]]",
        _words,
    ),
    _Function(
        "word_counts",
        "Return how often each word occurs, in lower case; case does not matter.",
        _COUNTS.format("values.lower()"),
        _COUNTS.format("values"),
        _words,
    ),
    _Function(
        "digits_sum",
        "Return the sum of the digits.",
        "return sum(int(digit) for digit in str(values))",
        "return sum(range(values % 10))",
        _number,
    ),
    _Function(
        "divisors",
        "Return all divisors in ascending order.",
        "return [one for one in range(1, values + 1) if values % one == 0]",
        "return [one for one in range(1, values) if values % one == 0]",
        _number,
    ),
    _Function(
        "to_roman",
        "Return the number in Roman numerals.",
        _ROMAN.format(_SIGNS),
        _ROMAN.format([pair for pair in _SIGNS if len(pair[1]) == 1]),
        _number,
    ),
)


def _module(chosen: Sequence[_Function], broken: Sequence[_Function], version: str = _OLD_VERSION) -> str:
    parts = []
    for function in chosen:
        body = function.wrong if function in broken else function.body
        parts.append(f'def {function.name}(values):\n    """{function.about}"""\n    {body}\n')
    return f'"""Small functions."""\n\nVERSION = "{version}"\n\n\n' + "\n\n".join(parts)


def _telling(function: _Function, right: dict[str, Any], wrong: dict[str, Any], rng: np.random.Generator) -> list[Any]:
    """Draw an input on which the fault of ``function`` shows."""
    while True:
        given = function.inputs(rng)
        if right[function.name](*given) != wrong[function.name](*given):
            return given


def tests(rng: np.random.Generator, level: int) -> Scene:
    """Mend one, two or three functions of a package, and set its version."""
    chosen = sample(rng, _FUNCTIONS, 4 + level)
    broken = chosen[: 1 + level]
    order = sample(rng, chosen, len(chosen))
    version = _new_version(rng)
    right: dict[str, Any] = {}
    exec(_module(_FUNCTIONS, ()), right)  # noqa: S102  (our own functions, as written above)
    shown = [
        (function.name, given, right[function.name](*given))
        for function in order
        for given in (function.inputs(rng) for _ in range(4))
    ]
    wrong: dict[str, Any] = {}
    exec(_module(_FUNCTIONS, _FUNCTIONS), wrong)  # noqa: S102  (the same)
    hidden = [(function.name, given) for function in order for given in (function.inputs(rng) for _ in range(8))]
    hidden += [(function.name, _telling(function, right, wrong, rng)) for function in broken]
    expected = [right[name](*given) for name, given in hidden]
    cases = "".join(
        f"    def test_{number}(self):\n        self.assertEqual({name}({given[0]!r}), {value!r})\n\n"
        for number, (name, given, value) in enumerate(shown)
    )
    test_file = (
        f"import unittest\n\nfrom functions import {', '.join(function.name for function in order)}\n\n\n"
        f"class Tests(unittest.TestCase):\n{cases}"
        "\nif __name__ == '__main__':\n    unittest.main()\n"
    )
    files = [text_file("package/functions.py", _module(order, broken)), text_file("package/test_functions.py", test_file)]
    driver = script(
        "cd package && python3 - <<'END'",
        "import json, sys",
        "sys.path.insert(0, '.')",
        "import functions",
        f"cases = json.loads({json.dumps(json.dumps(hidden))})",
        "print(json.dumps([functions.VERSION, *(getattr(functions, name)(*given) for name, given in cases)]))",
        "END",
    )
    goal = (
        "Some tests of the package fail: `cd package; python3 -m unittest`. Mend functions.py so that every function does what "
        f"its docstring says, and set VERSION in it to {version}. The package is judged by other tests than those that you see."
    )

    check = Prints(driver, [version, *expected], "value", ["package/functions.py"])
    return Scene(goal, files, [check], [_put("package/functions.py", _module(order, (), version))])
