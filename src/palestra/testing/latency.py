"""An environment that answers late, as one behind a network or with a slow program does, while the CPU is free.

In a recipe, as a wrapper of a variant::

    [[variants."game:GuessTheNumber-v0-late".wrappers]]
    use = "palestra.testing.latency:Latency"
    seconds = 0.05
    spread = 1.0
"""

import asyncio
from typing import Any

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.trajectory import Content, Task

__all__ = ["Latency"]


class Latency(Wrapper):
    """Waits before each observation.

    The seconds are log-normal and derived from the seed of the task, so all episodes of a task wait equally long, under every
    schedule.

    Args:
        env: The environment that answers late.
        seconds: The median of a wait.
        spread: The standard deviation of its logarithm: 0 for equal waits, 1 for a long tail.
        per_task: Whether all waits of a task are equal, so that some tasks are slow as a whole.

    """

    def __init__(
        self,
        env: AsyncEnv,
        seconds: float = 0.05,
        spread: float = 1.0,
        per_task: bool = False,
    ) -> None:
        super().__init__(env)
        if seconds < 0 or spread < 0:
            raise UsageError(f"seconds and spread must be at least 0, got {seconds} and {spread}")
        self.seconds, self.spread, self.per_task = seconds, spread, per_task
        self._seed, self._turn = 0, 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._seed, self._turn = (seed if task is None else task.seed) or 0, 0
        await self._wait()
        return await self.env.reset(seed=seed, task=task)

    async def step(self, action: str) -> Step:
        self._turn += 1
        await self._wait()
        return Step(*await self.env.step(action))

    async def _wait(self) -> None:
        turn = 0 if self.per_task else self._turn
        await asyncio.sleep(self.seconds * float(derive(self._seed, "latency", turn).lognormal(0.0, self.spread)))
