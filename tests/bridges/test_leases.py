"""An environment that is lent is closed when the other program drops it, or leaves it alone for too long."""

import asyncio
import gc
import threading
import time
from typing import Any, ClassVar

import pytest

from palestra import Step, Task
from palestra.bridges.leases import LentEnv
from palestra.core import AsyncEnv, Env
from palestra.errors import UsageError
from tests.leftovers import child_processes, nothing_left, open_files

COUNTED = "tests.bridges.test_leases:Counted"


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
    while not lent.closed or Counted.open:
        time.sleep(0.01)
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


def test_a_class_that_cannot_be_built_leaves_no_loop_behind() -> None:
    for _ in range(3):
        with pytest.raises(UsageError, match="unexpected"):
            LentEnv(COUNTED, unexpected=1)
    assert settled(Counted.open)


@pytest.mark.slow
def test_the_lease_runs_from_the_beginning_and_not_during_a_call() -> None:
    lent = LentEnv(COUNTED, idle=0.02)
    while not lent.closed:
        time.sleep(0.01)
    lent.close()

    async def two_at_once() -> None:
        slow = LentEnv("tests.bridges.test_leases:Slow", idle=2.0)
        await slow.reset_async(seed=0)
        first, second = asyncio.create_task(slow.step_async("0.01")), asyncio.create_task(slow.step_async("2.5"))
        assert (await first).observation == "0.01"
        assert (await second).observation == "2.5"
        assert not slow.closed
        await slow.close_async()

    asyncio.run(two_at_once())
    assert settled()


def test_a_caller_that_is_cancelled_while_closing_leaves_nothing_open() -> None:
    async def abandon() -> None:
        slow = LentEnv("tests.bridges.test_leases:Slow")
        await slow.reset_async(seed=0)
        closing = asyncio.create_task(slow.close_async())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(abandon())
    assert settled()


def test_several_players_are_refused() -> None:
    lent = LentEnv("tests.bridges.test_leases:Players")
    with pytest.raises(UsageError, match="several players"):
        lent.reset(seed=0)
    lent.close()
    assert settled()


class Slow(AsyncEnv):
    """Waits as long as it is asked to, and a little when it is closed."""

    def __init__(self) -> None:
        Counted.open += 1

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return "go", {}

    async def step(self, action: str) -> Step:
        await asyncio.sleep(float(action))
        return Step(action, 1.0, False, False, {})

    async def close(self) -> None:
        await asyncio.sleep(0.05)
        Counted.open -= 1


class Players(Counted):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        return "go", {"player": "white"}


@pytest.mark.gate
@pytest.mark.slow
def test_worker_processes_end_with_the_environments() -> None:
    processes, files = child_processes(), open_files()

    async def abandon() -> None:
        lent = LentEnv("tests.bridges.test_leases:Elsewhere")
        await lent.reset_async(seed=0)
        assert child_processes() > processes

    asyncio.run(abandon())
    assert settled()
    assert child_processes() <= processes
    assert open_files() <= files
