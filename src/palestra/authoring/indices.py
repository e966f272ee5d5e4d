"""The index of a task in an environment that has a finite number of them."""

import numpy as np

from palestra.errors import UsageError
from palestra.trajectory import Task

__all__ = ["draw_index"]


def draw_index(task: Task, count: int, rng: np.random.Generator, name: str) -> int:
    """Return ``task.index``, or an index below ``count`` drawn by ``rng`` if the task names none.

    Raises:
        UsageError: There is no such index. ``name`` says in the message what has how many, as in ``gsm8k/test has rows``.
    """
    index = int(rng.integers(count)) if task.index is None else task.index
    if not 0 <= index < count:
        raise UsageError(f"{name} 0 to {count - 1}, got index {index}")
    return index
