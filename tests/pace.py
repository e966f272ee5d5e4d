"""How slow this machine is, for tests whose point is a limit in seconds.

Such a limit was written on one machine and would fail on a slower one, or under coverage, without a fault in the code. Prefer a
ratio of two measurements, or a limit that only a hang can miss; multiply by ``slowness()`` what is left.
"""

import sys
from time import process_time

REFERENCE = 0.020
"""CPU seconds of ``_work`` on the machine on which the limits were written."""
TRACED = 4.0
"""How much slower traced code may be: coverage calls a function on every line."""


def slowness() -> float:
    """Return how many times slower Python is here, now, than where the limits were written; at least 1."""
    measured = min(_seconds() for _ in range(3)) / REFERENCE
    return max(1.0, measured) * (1.0 if sys.gettrace() is None else TRACED)


def _seconds() -> float:
    began = process_time()
    _work()
    return process_time() - began


def _work() -> None:
    counts: dict[int, int] = {}
    for number in range(200_000):
        counts[number % 97] = counts.get(number % 97, 0) + number
