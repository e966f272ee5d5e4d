"""The turn limits of a run's episodes: those that the horizon schedules say for each task."""

from collections.abc import Mapping
from typing import Any

from palestra.core import AsyncEnv
from palestra.trajectory import Content, Task
from palestra.wrappers import TurnLimit

__all__ = ["ScheduledHorizon", "task_key"]


class ScheduledHorizon(TurnLimit):
    """A turn limit that depends on the task."""

    def __init__(self, env: AsyncEnv, turns_of: Mapping[tuple[str, int | None], int]) -> None:
        super().__init__(env, 1)
        self._turns_of = turns_of

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        assert task is not None
        self.turns = self._turns_of[task_key(task)]
        return await super().reset(seed=seed, task=task)


def task_key(task: Task) -> tuple[str, int | None]:
    """What distinguishes the tasks of a run."""
    return task.env, task.seed
