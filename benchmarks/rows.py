"""The end of every benchmark: a table for people and one line of JSON for machines."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Row", "cpu_minutes", "finish", "interleaved", "share_of_a_core", "stay_on_one_core"]


class Row(NamedTuple):
    """One figure against its limit."""

    what: str
    value: float
    limit: str
    """``<= 1.3`` or ``>= 2``; empty for a figure that is only reported."""

    @property
    def ok(self) -> bool:
        """Whether the figure keeps its limit."""
        if not self.limit:
            return True
        relation, number = self.limit.split()
        return self.value <= float(number) if relation == "<=" else self.value >= float(number)


def finish(rows: list[Row]) -> None:
    """Print the table and the JSON line, and exit with 1 if a limit is missed."""
    width = max(len(row.what) for row in rows)
    for row in rows:
        mark = " " if not row.limit else "✓" if row.ok else "✗"
        print(f"{mark} {row.what:<{width}}  {row.value:>10.4g}  {row.limit}")
    ok = all(row.ok for row in rows)
    print(json.dumps({"rows": [{**row._asdict(), "ok": row.ok} for row in rows], "ok": ok}))
    sys.exit(0 if ok else 1)


def interleaved(first: Callable[[], float], second: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """The least of each, and the median of the ratios second/first, measured in turns so that noise hits both alike."""
    pairs = [(first(), second()) for _ in range(rounds)]
    ratios = sorted(b / a for a, b in pairs)
    return min(a for a, _ in pairs), min(b for _, b in pairs), ratios[len(ratios) // 2]


def cpu_minutes() -> float:
    """CPU time of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) / 60


def stay_on_one_core() -> None:
    """Keep this process, and those it starts from now on, on one core, where the system can.

    Two processes that take turns are compared on the same core then: the cores of a virtual machine are not equally fast.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


_BURN = """
import time
began, spent = time.perf_counter(), time.process_time()
while time.perf_counter() < began + 0.5:
    pass
print((time.process_time() - spent) / (time.perf_counter() - began))
"""


def share_of_a_core(processes: int) -> float:
    """The mean share of a core that each of so many plain processes gets now, each computing for half a second: 1 if idle."""
    burning = [subprocess.Popen([sys.executable, "-c", _BURN], stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    return sum(float(one.communicate()[0]) for one in burning) / processes
