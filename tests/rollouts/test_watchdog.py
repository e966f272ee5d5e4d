"""Code that holds the event loop is named, and Ctrl-C ends it."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra import Env, Step, Task
from palestra.errors import EventLoopBlocked
from palestra.rollouts import watchdog
from tests.leftovers import nothing_left


class Holding(Env):
    """Holds the event loop in the verb that the task's seed names."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        if self.task.seed == 1:
            time.sleep(0.5)
        return "go", {}

    def step(self, action: str) -> Step:
        if self.task.seed == 2:
            time.sleep(0.5)
        return Step("", 1.0, True, False, {})


def holding_policy(text: str) -> str:
    time.sleep(0.5)
    return "act"


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("HELD", 0.2), ("_BEAT", 0.02)):
        monkeypatch.setattr(watchdog, name, seconds)


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize(
    ("seed", "policy", "message"),
    [
        (1, lambda text: "act", rf"reset\(\) of the environment {__name__}:Holding has held .*test_watchdog.py:\d+.*blocking"),
        (2, lambda text: "act", rf"step\(\) of the environment {__name__}:Holding has held .*test_watchdog.py:\d+.*blocking"),
        (3, holding_policy, rf"act\(\) of a policy, playing {__name__}:Holding has held .*test_watchdog.py:\d+.*async def"),
    ],
)
def test_what_holds_the_loop_is_named_while_it_holds_it(seed: int, policy: Any, message: str) -> None:
    with nothing_left(), pytest.warns(EventLoopBlocked, match=message):
        (played,) = palestra.collect([Task(f"{__name__}:Holding", seed)], policy)
    assert played.reward == 1.0


@pytest.mark.usefixtures("watchful")
def test_nobody_is_named_for_time_without_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a busy machine: all the time that passes is time in which the thread waits for a processor.
    monkeypatch.setattr(watchdog, "seconds_without_processor", lambda native: time.monotonic())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        (played,) = palestra.collect([Task(f"{__name__}:Holding", 2)], lambda text: "act")
    assert played.reward == 1.0
    assert not [str(warning.message) for warning in warned if " has held " in str(warning.message)]


def test_time_without_a_processor_is_that_of_the_kernel() -> None:
    seconds = watchdog.seconds_without_processor(threading.get_native_id())
    assert 0 <= seconds <= time.monotonic()
    assert watchdog.seconds_without_processor(2**22 + 1) == 0.0  # no such thread


PROGRAM = """
import asyncio, pathlib, sys, time
import palestra
from palestra import Env, Step, Task

class Busy(Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return "go", {}

    def step(self, action):
        print("busy", flush=True)
        while self.task.seed:
            try:
                time.sleep(60 if self.task.index else 0)
            except BaseException:
                if not self.task.index:
                    raise
        return Step("", 1.0, True, False, {})

async def main():
    tasks = [Task("__main__:Busy", 0), Task("__main__:Busy", 1, index=int(sys.argv[1]))]
    async for played in palestra.rollout(tasks, lambda text: "act", concurrency=1):
        print(played.stop, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("catches", "code"), [(0, -signal.SIGINT), (1, 130)])
def test_ctrl_c_ends_a_busy_loop(tmp_path: Path, catches: int, code: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, program, str(catches)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as running:
        assert running.stdout is not None
        assert [running.stdout.readline().strip() for _ in range(3)] == ["busy", "terminated", "busy"]
        running.send_signal(signal.SIGINT)
        _, problems = running.communicate(timeout=10)
    assert running.returncode == code, problems
