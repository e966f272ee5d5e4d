"""Environments that answer late, under a virtual clock."""

import asyncio
from typing import Any

import pytest

from palestra.adapters import Direct
from palestra.errors import UsageError
from palestra.registry import make
from palestra.testing.clock import VirtualClockLoop
from palestra.testing.latency import Latency
from palestra.trajectory import Task

GAME = "game:GuessTheNumber-v0-easy"


async def waits(seed: int, turns: int, **options: Any) -> list[float]:
    """The virtual seconds of the reset and of every step."""
    env, clock, found = Latency(Direct(make(GAME)), **options), asyncio.get_running_loop().time, []
    began = clock()
    await env.reset(task=Task(GAME, seed))
    found.append(clock() - began)
    for _ in range(turns):
        began = clock()
        await env.step(r"\boxed{1}")
        found.append(clock() - began)
    await env.close()
    return found


def timed(seed: int, turns: int = 2, **options: Any) -> list[float]:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(waits(seed, turns, **options))


def test_without_spread_every_wait_is_the_median() -> None:
    assert timed(0, seconds=3.0, spread=0.0) == pytest.approx([3.0, 3.0, 3.0])


def test_waits_depend_on_the_task_alone() -> None:
    assert timed(4) == timed(4) != timed(5)
    assert len(set(timed(4))) == 3


def test_slow_tasks_are_slow_in_every_turn() -> None:
    first, *others = timed(4, per_task=True)
    assert others == pytest.approx([first, first])


def test_half_of_the_waits_are_shorter_than_the_median() -> None:
    shorter = sum(timed(seed, 0, seconds=2.0)[0] < 2.0 for seed in range(200))
    assert 75 < shorter < 125


def test_negative_seconds_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 0"):
        Latency(Direct(make(GAME)), seconds=-1.0)
