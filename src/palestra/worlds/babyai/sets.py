"""AgentGym's task numbers, as two finite sets: the tasks on which AgentGym-RL trains, and its panel of 90.

Task ``n`` is the level ``n % 40 + 1`` of AgentGym's list with the seed ``n // 40``. Numbers below 1804 are for training, those
from 1804 to 2003 for the test, and in both cases only the 18 levels in ``AGENTGYM`` count.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from palestra.errors import UsageError
from palestra.trajectory import Content, Task
from palestra.worlds.babyai.env import BabyAI
from palestra.worlds.babyai.levels import AGENTGYM, AGENTGYM_NUMBERED

__all__ = ["BabyAISet", "NumberedTasks", "read_tasks"]

_SPLITS = {"train": range(1804), "test": range(1804, 2004)}


@dataclass(frozen=True)
class NumberedTasks:
    """The tasks of one split. Row ``k`` is the ``k``-th number whose level is in the panel."""

    split: str

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """AgentGym's numbers of the tasks, in order."""
        return tuple(number for number in _SPLITS[self.split] if number % AGENTGYM_NUMBERED + 1 in AGENTGYM)

    @property
    def sha256(self) -> str:
        """Hash of all levels and seeds."""
        return hashlib.sha256(repr([self.level_and_seed(index) for index in range(len(self))]).encode()).hexdigest()

    def level_and_seed(self, index: int) -> tuple[str, int]:
        """Return the level and minigrid's seed of row ``index``."""
        number = self.numbers[index]
        return AGENTGYM[number % AGENTGYM_NUMBERED + 1], number // AGENTGYM_NUMBERED

    def __len__(self) -> int:
        return len(self.numbers)


def read_tasks(split: str = "test", **_: Any) -> NumberedTasks:
    """Return the tasks of an environment with these keyword arguments."""
    if split not in _SPLITS:
        raise UsageError(f'split must be {" or ".join(_SPLITS)}, got "{split}"')
    return NumberedTasks(split)


class BabyAISet(BabyAI):
    """AgentGym's tasks under the rules of ``BabyAI``: level 4 has its true size, and missions keep their order.

    Args:
        split: ``test`` for the panel of 90, ``train`` for the 814 tasks of the training.
        max_turns: The turn limit; by default that of each task's level.
    """

    # The constant answer "go to red ball 1", over the panel.
    floor = 0.09

    def __init__(self, split: str = "test", *, max_turns: int | None = None) -> None:
        super().__init__("GoToLocal", max_turns=max_turns)
        self.tasks = read_tasks(split)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = super().reset(seed=seed, task=task)
        return observation, {**info, "data": {"set": "AgentGym", "split": self.tasks.split, "index": self._index}}

    def draw(self) -> tuple[str, int]:
        index = self.task.index
        self._index = int(self.rng.integers(len(self.tasks))) if index is None else index
        if not 0 <= self._index < len(self.tasks):
            raise UsageError(f"there are tasks 0 to {len(self.tasks) - 1}, got index {self._index}")
        return self.tasks.level_and_seed(self._index)
