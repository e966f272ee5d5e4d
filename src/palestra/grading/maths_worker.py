"""The workers that compare formulas. A script: ``python maths_worker.py SECONDS FD…``, one socket per worker.

It imports math-verify and sympy once and forks the workers, so replacing one takes milliseconds. If a worker does not answer
in time, a kernel timer that no computation can delay kills it, and its parent answers ``T`` for it. The timer counts CPU time:
a busy machine does not make a correct answer wrong. A worker never waits or sleeps, so on a free core CPU time is wall time.

A request is a four-byte length and a JSON list: a table of formulas that must be equal, and how its rows and columns are paired
(``matched``). The answer is one letter: ``1`` equal, ``0`` not equal, ``E``
the comparison failed, ``T`` it took too long, ``N`` the worker died. A worker sends ``R`` once, when it starts to serve its
socket.
"""

import contextlib
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
from functools import cache, lru_cache
from typing import Any

MEMORY = 2 * 2**30
ANSWERS_PER_WORKER = 1000
WARM_UP = (
    *(
        ("1", "\\frac{2}{2}"),
        ("\\sqrt{8}", "2\\sqrt{2}"),
        ("(x+1)^2", "x^2+2x+2"),
        ("\\frac{\\pi}{4}", "\\frac{785}{1000}"),
        ("(1,2]", "[1,2)"),
    ),
    *(
        ("\\{1,2\\}", "\\{2,3\\}"),
        ("x=5", "2x=10"),
        ("\\sum_{k=1}^{3}k", "6"),
        ("\\sin^2 x+\\cos^2 x", "1"),
        ("2^{10}", "1024"),
        ("x+y>3", "3<x+y"),
    ),
    *(("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\3\\end{pmatrix}"), ("1+2i", "2i+1"), ("\\infty", "1")),
)
"""Comparisons of every kind, made before the first fork: sympy loads many of its modules on first use."""


@lru_cache(maxsize=1024)
def parsed(text: str) -> Any:
    """Return the formula ``text``. What is not a formula raises an error: no formula is searched for in it."""
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Basic, I, Symbol

    names = ConversionConfig(lowercase_symbols=False, interpret_contains_as_eq=False)
    formula = latex2sympy(text, is_real=True, normalization_config=None, conversion_config=names)
    units = {Symbol("i", real=True): I} if "i" in text else {}
    return (
        formula.subs(units)
        if units and isinstance(formula, Basic) and not units.keys().isdisjoint(formula.free_symbols)
        else formula
    )


def equal(gold: str, answer: str, places: int = 0) -> bool:
    """Return whether the two are mathematically equal: exactly, or, where one is a decimal, rounded to its ``places``."""
    from math_verify.grader import sympy_compare_relational, sympy_compare_sets
    from sympy import Basic, Eq, Expr, FiniteSet, MatrixBase, N, Set, Tuple, nan, simplify, zoo
    from sympy.core.relational import Relational

    wanted, given = parsed(gold), parsed(answer)
    for side in (wanted, given):
        if isinstance(side, Basic) and side.has(nan, zoo):  # what has no value equals nothing
            return False
    if places:
        return bool(abs(N(wanted - given, places + 30)) * 10**places <= 0.5)
    if isinstance(wanted, Eq) and isinstance(given, Eq):
        # Equations have the same solutions if one is a multiple of the other; math-verify takes any two without a solution.
        ratio = simplify((wanted.lhs - wanted.rhs) / (given.lhs - given.rhs))
        return bool(ratio.is_number and ratio.is_finite and not ratio.is_zero)
    if isinstance(wanted, Relational) and isinstance(given, Relational):
        return wanted.free_symbols == given.free_symbols and bool(sympy_compare_relational(wanted, given, 6, 30))
    if isinstance(wanted, MatrixBase) and isinstance(given, MatrixBase):
        return wanted.shape == given.shape and all(same_value(*pair) for pair in zip(wanted.flat(), given.flat(), strict=True))
    if isinstance(wanted, Expr) and isinstance(given, Expr):
        return same_value(wanted, given)
    if isinstance(wanted, (Set, Tuple)) and isinstance(given, (Set, Tuple)):
        return isinstance(wanted, FiniteSet) is isinstance(given, FiniteSet) and bool(sympy_compare_sets(wanted, given, 6, 30))
    return bool(wanted == given)


def same_value(left: Any, right: Any) -> bool:
    """Return whether two expressions have the same value."""
    from math_verify.grader import sympy_numeric_eq, sympy_symbolic_eq

    return bool(left == right or sympy_numeric_eq(left, right, 6, 30) or sympy_symbolic_eq(left, right))


def matched(options: list[list[Any]], covers: bool) -> bool:
    """Return whether rows and columns can be paired: an option is a list of formulas that must be equal, or null.

    Equality is transitive, so the first column that fits a row may be taken. If ``covers``, a row may share a column: each
    row needs one that fits, and each column a row.
    """

    @cache
    def fits(row: int, column: int) -> bool:
        option = options[row][column]
        return option is not None and all(comparable(*pair) for pair in option)

    columns = range(len(options[0]))
    if covers:
        by_row = all(any(fits(row, column) for column in columns) for row in range(len(options)))
        return by_row and all(any(fits(row, column) for row in range(len(options))) for column in columns)
    free = set(columns)
    for row in range(len(options)):
        column = next((column for column in sorted(free) if fits(row, column)), None)
        if column is None:
            return False
        free.discard(column)
    return not free


def comparable(answer: str, gold: str, places: int) -> bool:
    """Return whether two formulas are equal; those that cannot be read are not."""
    try:
        return equal(gold, answer, places)
    except Exception:  # noqa: BLE001 - sympy may raise anything
        return False


def serve(connection: socket.socket, seconds: float) -> None:
    """Answer requests until the host closes the socket, or until the process should be replaced."""
    for _ in range(ANSWERS_PER_WORKER):
        header = connection.recv(4, socket.MSG_WAITALL)
        if len(header) < 4:
            os._exit(1)
        request = connection.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            options, covers = json.loads(request)
            if len(options) == len(options[0]) == 1 and options[0][0] is not None:
                right = all(equal(gold, answer, places) for answer, gold, places in options[0][0])
            else:
                right = matched(options, covers)
            reply = b"1" if right else b"0"
        except Exception:  # noqa: BLE001 - sympy may raise anything
            reply = b"E"
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(reply)


def fork_worker(connection: socket.socket, seconds: float) -> int:
    """Start a worker on ``connection``."""
    pid = os.fork()
    if pid:
        return pid
    status = 2
    try:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        # It may write no file, start no process, and use no more memory than this.
        for limit, value in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
            resource.setrlimit(limit, (value, value))
        sys.setrecursionlimit(2000)
        serve(connection, seconds)
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    """Keep one worker on every socket until the sockets are closed."""
    seconds, sockets = float(sys.argv[1]), [socket.socket(fileno=int(fd)) for fd in sys.argv[2:]]
    logging.disable(logging.CRITICAL)
    for gold, answer in WARM_UP * 2:
        equal(gold, answer)
    parsed.cache_clear()
    gc.freeze()
    workers = {fork_worker(connection, seconds): connection for connection in sockets}
    for connection in sockets:
        connection.send(b"R")
    while workers:
        pid, status = os.wait()
        connection = workers.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == 1:  # the host closed the socket
            connection.close()
            continue
        if code != 0:
            with contextlib.suppress(ConnectionError):
                connection.send(b"T" if code == -signal.SIGPROF else b"N")
        workers[fork_worker(connection, seconds)] = connection


if __name__ == "__main__":
    main()
