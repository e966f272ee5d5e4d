"""An environment that is lent is closed when the other program drops it, or leaves it alone for too long."""

import asyncio
import gc
import threading
import time
from typing import Any, ClassVar

import pytest

from palestra import Step, Task
from palestra.core import Env
from palestra.errors import UsageError
from palestra.integrations.leases import LentEnv
from tests.leftovers import child_processes, nothing_left, open_files

COUNTED = "tests.integrations.test_leases:Counted"


class Counted(Env):
    """Counts how many are open."""

    open: ClassVar[int] = 0

    def __init__(self) -> None:
        type(self).open += 1

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return "go", {}

    def step(self, action: str) -> Step:
        if action == "break":
            raise RuntimeError("broken")
        return Step(action, 1.0, action == "end", False, {})

    def close(self) -> None:
        type(self).open -= 1


class Elsewhere(Counted):
    """The same in a worker process."""

    blocking = True


def settled(open_before: int = 0) -> bool:
    """Wait until every environment is closed and the background loop has ended."""
    for _ in range(2000):
        gc.collect()
        names = [thread.name for thread in threading.enumerate()]
        if Counted.open == open_before and "palestra-loop" not in names:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_a_thousand_environments_that_are_dropped_are_closed() -> None:
    with nothing_left():
        for number in range(1000):
            lent = LentEnv(COUNTED)
            lent.reset(seed=number)
            assert lent.step("on").observation == "on"
        del lent
        assert settled()


def test_the_loop_of_the_other_program_may_have_ended() -> None:
    async def abandon() -> list[LentEnv]:
        some = [LentEnv(COUNTED) for _ in range(10)]
        for lent in some:
            await lent.reset_async(task=Task(COUNTED, 1))
            await lent.step_async("on")
        return some

    with nothing_left():
        some = asyncio.run(abandon())
        assert Counted.open == 10
        some.clear()
        assert settled()


def test_an_idle_environment_is_closed_and_says_so() -> None:
    lent = LentEnv(COUNTED, idle=0.02)
    lent.reset(seed=0)
    while not lent.closed:
        time.sleep(0.01)
    assert Counted.open == 0
    with pytest.raises(UsageError, match=r"closed after 0\.02 s without a call"):
        lent.step("on")
    lent.close()
    assert settled()


def test_closing_twice_closes_once_and_an_error_is_the_environments_own() -> None:
    lent = LentEnv(COUNTED)
    lent.reset(seed=0)
    with pytest.raises(RuntimeError, match="broken"):
        lent.step("break")
    assert lent.step("end").terminated
    lent.close()
    lent.close()
    assert lent.closed
    asyncio.run(lent.close_async())
    assert settled()


@pytest.mark.slow
def test_worker_processes_end_with_the_environments() -> None:
    processes, files = child_processes(), open_files()

    async def abandon() -> None:
        lent = LentEnv("tests.integrations.test_leases:Elsewhere")
        await lent.reset_async(seed=0)
        assert child_processes() > processes

    asyncio.run(abandon())
    assert settled()
    assert child_processes() <= processes
    assert open_files() <= files
