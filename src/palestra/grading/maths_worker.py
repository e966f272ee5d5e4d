"""The workers that compare formulas. A script: ``python maths_worker.py SECONDS FD…``, one socket per worker.

It imports math-verify and sympy once and forks the workers, so replacing one takes milliseconds. If a worker does not answer
in time, a kernel timer that no computation can delay kills it, and its parent answers ``T`` for it. The timer counts CPU time:
a busy machine does not make a correct answer wrong. A worker never waits or sleeps, so on a free core CPU time is wall time.

A request is a four-byte length and a JSON list of two texts. The answer is one letter: ``1`` equal, ``0`` not equal, ``E``
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
from functools import lru_cache
from typing import Any

MEMORY = 2 * 2**30
ANSWERS_PER_WORKER = 1000
WARM_UP = (
    *(
        ("1", "\\frac{2}{2}"),
        ("\\sqrt{8}", "2\\sqrt{2}"),
        ("(x+1)^2", "x^2+2x+2"),
        ("\\frac{\\pi}{4}", "0.785"),
        ("(1,2]", "[1,2)"),
    ),
    *(("\\{1,2\\}", "\\{2,3\\}"), ("x=5", "5"), ("50\\%", "0.5"), ("10\\text{ cm}", "10"), ("2^{10}", "1024"), ("x>3", "3<x")),
    *(("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1\\\\3\\end{pmatrix}"), ("1+2i", "2i+1"), ("\\infty", "1")),
)
"""Comparisons of every kind, made before the first fork: sympy loads many of its modules on first use."""


@lru_cache(maxsize=1024)
def parsed(text: str) -> Any:
    """Return what math-verify reads in ``text``, as a formula or, if that gives nothing, as prose."""
    from math_verify import parse

    found = parse(f"${text}$", parsing_timeout=None)
    return found or parse(text, parsing_timeout=None)


def equal(gold: str, answer: str) -> bool:
    """Return whether the two are mathematically equal."""
    from math_verify import verify

    return bool(verify(parsed(gold), parsed(answer), timeout_seconds=None))


def serve(connection: socket.socket, seconds: float) -> None:
    """Answer requests until the host closes the socket, or until the process should be replaced."""
    for _ in range(ANSWERS_PER_WORKER):
        header = connection.recv(4, socket.MSG_WAITALL)
        if len(header) < 4:
            os._exit(1)
        request = connection.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            gold, answer = json.loads(request)
            reply = b"1" if equal(gold, answer) else b"0"
        except Exception:
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
