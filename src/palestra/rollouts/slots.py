"""The places of a vector, and what its engines share: ``in_place`` runs plain environments, ``on_loop`` all others."""

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from palestra.adapters.ownership import Owner
from palestra.core import AsyncEnv, Step
from palestra.trajectory import Content, Failure, Phase, Task

__all__ = ["ReadySteps", "Slot", "VectorEngine", "VectorStep"]

ReadySteps = queue.SimpleQueue[tuple[int, Step | BaseException]]
"""The steps that ``recv`` returns, with the index of their environment; or an exception that is a bug."""


class VectorStep(NamedTuple):
    """One step of every environment."""

    observations: list[Content]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    infos: list[dict[str, Any]]


@dataclass(slots=True)
class Slot:
    """The place of one environment."""

    index: int
    make_env: Callable[[], AsyncEnv]
    name: str
    """The id of its tasks."""
    env: AsyncEnv | None = None
    """``None`` after a failure: the next episode starts in a new environment."""
    seed: int = 0
    """The seed of the latest task. The next task has this seed plus 1."""
    ended: bool = True
    owner: Owner = field(default_factory=lambda: Owner(None))
    """The owner of what the code of its environments starts."""


class VectorEngine(ABC):
    """Begins and steps the episodes of slots."""

    def __init__(self, *, same_step: bool) -> None:
        self._same_step = same_step

    @abstractmethod
    def reset(self, slots: Sequence[Slot]) -> list[Step]:
        """Begin an episode in every slot; the first observations, as steps."""

    @abstractmethod
    def step(self, slots: Sequence[Slot], actions: Sequence[str]) -> VectorStep:
        """Take one step in every slot and wait for all of them."""

    @abstractmethod
    def send(self, slots: Sequence[Slot], actions: Mapping[int, str], ready: ReadySteps) -> None:
        """Start steps in some slots; each goes into ``ready`` when it ends."""

    @abstractmethod
    def close(self, slots: Sequence[Slot]) -> None:
        """Close the environments of all slots. A second call does nothing."""

    def _next_task(self, slot: Slot) -> Task:
        slot.ended = False
        slot.seed += 1  # environments hash their seed, so consecutive seeds give unrelated tasks
        return Task(slot.name, slot.seed)

    @staticmethod
    def _failed(slot: Slot, error: BaseException, phase: Phase) -> Step:
        """The step that reports a failure: truncated, with NaN as reward."""
        slot.ended = True
        return Step("", float("nan"), False, True, {"failure": Failure.of(error, phase)})
