"""Schedules: the largest number of turns per episode at each step.

A schedule is called with the step and with the outcomes of earlier steps, and returns a number of turns. It must be a pure
function of these two, so that a resumed run gets the horizons that the uninterrupted run would have had. All members of a group
start at one step, so they share one horizon.

A recipe names a built-in schedule or one of your own (``module:name``)::

    [horizon.default]
    use = "stepwise"          # ScalingInter-RL: a short horizon first, a longer one every 100 steps
    turns = [5, 10, 15]
    every = 100
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from palestra.errors import UsageError
from palestra.recipes.algorithms import HORIZON, HorizonConfig

__all__ = [
    "Fixed",
    "Linear",
    "Schedule",
    "StepOutcome",
    "Stepwise",
    "SuccessGated",
    "schedule_of",
    "turns_at",
]

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class StepOutcome(msgspec.Struct, frozen=True):
    """The result of one environment's episodes in one committed step. Failed episodes are in neither number."""

    step: int
    episodes: int
    successes: int


Schedule = Callable[[int, Sequence[StepOutcome]], int]
"""Takes the step, counted from 0, and one environment's outcomes of earlier steps. Returns the number of turns.

A schedule may have an attribute ``longest``, the most turns that it can return. Dry runs and the preflight use it."""


class Fixed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same horizon at every step."""

    turns: _Positive

    @property
    def longest(self) -> int:
        """The most turns of any step."""
        return self.turns

    def __call__(self, step: int, outcomes: Sequence[StepOutcome] = ()) -> int:
        return self.turns


class Stepwise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ScalingInter-RL: train for ``every`` steps with each horizon in ``turns``, one after the other, and stay at the last."""

    turns: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)]
    every: _Positive

    @property
    def longest(self) -> int:
        """The most turns of any step."""
        return max(self.turns)

    def __call__(self, step: int, outcomes: Sequence[StepOutcome] = ()) -> int:
        return self.turns[min(step // self.every, len(self.turns) - 1)]


class Linear(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Go from ``start`` to ``stop`` turns over ``steps`` steps, rounded down, and stay there."""

    start: _Positive
    stop: _Positive
    steps: _Positive

    @property
    def longest(self) -> int:
        """The most turns of any step."""
        return max(self.start, self.stop)

    def __call__(self, step: int, outcomes: Sequence[StepOutcome] = ()) -> int:
        return self.start + (self.stop - self.start) * min(step, self.steps) // self.steps


class SuccessGated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Move to the next of ``turns`` once the success rate over ``window`` steps at this horizon reaches ``threshold``."""

    turns: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)]
    threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
    window: _Positive = 10

    @property
    def longest(self) -> int:
        """The most turns of any step."""
        return max(self.turns)

    def __call__(self, step: int, outcomes: Sequence[StepOutcome] = ()) -> int:
        return self.turns[self._stage(step, outcomes)]

    def _stage(self, step: int, outcomes: Sequence[StepOutcome]) -> int:
        """Replay the gate over the steps before ``step``. The window is empty at the beginning of every stage."""
        if any(later.step <= earlier.step for earlier, later in itertools.pairwise(outcomes)):
            raise UsageError("outcomes must be in the order of their steps, one per step")
        stage = 0
        recent: list[StepOutcome] = []
        for outcome in outcomes:
            if outcome.step >= step or stage == len(self.turns) - 1:
                break
            if outcome.episodes:
                recent = [*recent, outcome][-self.window :]
            if len(recent) == self.window and _success_rate(recent) >= self.threshold:
                stage, recent = stage + 1, []
        return stage


def _success_rate(outcomes: Sequence[StepOutcome]) -> float:
    return sum(outcome.successes for outcome in outcomes) / sum(outcome.episodes for outcome in outcomes)


def schedule_of(config: HorizonConfig, env: str) -> Schedule:
    """Return the schedule of ``env``."""
    return HORIZON.load(config.environments.get(env, config.default))


def turns_at(schedule: Schedule, step: int, outcomes: Sequence[StepOutcome] = ()) -> int:
    """Return what ``schedule`` says for ``step``, which counts from 0. Raise ``UsageError`` if it is not a positive integer."""
    if step < 0:
        raise UsageError(f"steps count from 0, got {step}")
    turns = schedule(step, outcomes)
    if type(turns) is not int or turns < 1:
        raise UsageError(f"horizon: a schedule returns a number of turns (an integer of at least 1), got {turns!r}")
    return turns
