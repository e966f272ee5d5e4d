"""The environment that ``make`` returns: a plain one that enforces the contract."""

import operator
from typing import Any, SupportsIndex

from palestra.adapters.passing import Passing
from palestra.core import Env, Step
from palestra.errors import EpisodeOver, UsageError
from palestra.foundation.seeding import fresh_seed
from palestra.trajectory import Content, Task

__all__ = ["Guarded"]


class Guarded(Passing):
    """Refuses a step before ``reset`` and after the end, and closes the environment once. It is a context manager."""

    def __init__(self, env: Env, name: str) -> None:
        super().__init__(env)
        self.name = name
        """The id, which is the ``env`` of the tasks that ``reset(seed=…)`` makes."""
        self._turn = 0
        self._ended = "not begun"
        self._closed = False

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        if self._closed:
            raise EpisodeOver(self._why_not())
        if seed is not None and not isinstance(seed, SupportsIndex):
            raise UsageError(f"reset(seed=…) takes a whole number, got {seed!r:.80} ({type(seed).__name__})")
        if task is not None and not isinstance(task, Task):
            raise UsageError(f"reset(task=…) takes a palestra.Task, got {task!r:.80} ({type(task).__name__})")
        if task is None:
            task = Task(self.name, fresh_seed() if seed is None else operator.index(seed))
        result = self.env.reset(task=task)
        self._turn, self._ended = 0, ""
        return result

    def step(self, action: str) -> Step:
        if self._ended:
            raise EpisodeOver(self._why_not())
        if not isinstance(action, str):
            raise UsageError(
                f"step() takes text, the whole of what the model wrote, got {action!r:.80} ({type(action).__name__})"
            )
        step = self.env.step(action)
        self._turn += 1
        if step[2] or step[3]:
            self._ended = "terminated" if step[2] else "truncated"
        return step

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ended = "closed"
            self.env.close()

    def fork(self) -> "Guarded":
        twin = Guarded(self.env.fork(), self.name)
        twin._turn, twin._ended = self._turn, self._ended
        return twin

    def _why_not(self) -> str:
        if self._ended == "not begun":
            return "this episode has not begun. Call reset() first."
        if self._ended == "closed":
            return "this environment has been closed. Make a new one."
        return f"this episode ended at turn {self._turn} ({self._ended}). Call reset() first."

    def __enter__(self) -> "Guarded":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
