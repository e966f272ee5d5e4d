"""How many turns an episode may have, as training goes on.

A schedule is a pure function of the step and of statistics that were committed with earlier steps. It has no state, so a run
that is resumed at any step, a stage boundary included, gets the horizon that the run without a break would have had. All
members of a group are issued at one step and therefore share one horizon.

``Stepwise`` is ScalingInter-RL's schedule: a short horizon first, lengthened every so many steps.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from palestra.errors import UsageError

__all__ = ["Fixed", "HorizonConfig", "Linear", "Outcome", "Schedule", "Stepwise", "SuccessGated", "horizon"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Fixed(msgspec.Struct, frozen=True, tag="fixed", tag_field="kind", forbid_unknown_fields=True):
    """The same horizon at every step."""

    turns: _Positive


class Stepwise(msgspec.Struct, frozen=True, tag="stepwise", tag_field="kind", forbid_unknown_fields=True):
    """ScalingInter: the next of ``turns`` every ``every`` steps; the last one stays."""

    turns: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)]
    every: _Positive


class Linear(msgspec.Struct, frozen=True, tag="linear", tag_field="kind", forbid_unknown_fields=True):
    """From ``start`` to ``stop`` turns over ``steps`` steps, rounded down; ``stop`` from then on."""

    start: _Positive
    stop: _Positive
    steps: _Positive


class SuccessGated(msgspec.Struct, frozen=True, tag="success_gated", tag_field="kind", forbid_unknown_fields=True):
    """The next of ``turns`` once the success rate over the last ``window`` steps at this horizon reaches ``threshold``."""

    turns: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)]
    threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]
    window: _Positive = 10


Schedule = Fixed | Stepwise | Linear | SuccessGated


class Outcome(msgspec.Struct, frozen=True):
    """What one environment's episodes of one committed step came to. Failed episodes are in neither number."""

    step: int
    episodes: int
    successes: int


class HorizonConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule for every environment, and others for those that are named."""

    default: Schedule
    environments: dict[str, Schedule] = {}
    """By environment id."""

    def at(self, env: str, step: int, outcomes: Mapping[str, Sequence[Outcome]] = {}) -> int:
        """The horizon of ``env`` at ``step``, given what each environment's earlier steps came to."""
        return horizon(self.environments.get(env, self.default), step, outcomes.get(env, ()))


def horizon(schedule: Schedule, step: int, outcomes: Sequence[Outcome] = ()) -> int:
    """The number of turns allowed at ``step`` (the first step is 0). Outcomes of this step or later ones are ignored."""
    if step < 0:
        raise UsageError(f"steps count from 0, got {step}")
    match schedule:
        case Fixed(turns=turns):
            return turns
        case Stepwise(turns=stages, every=every):
            return stages[min(step // every, len(stages) - 1)]
        case Linear(start=start, stop=stop, steps=steps):
            return start + (stop - start) * min(step, steps) // steps
        case SuccessGated():
            return schedule.turns[_stage(schedule, step, outcomes)]


def _stage(schedule: SuccessGated, step: int, outcomes: Sequence[Outcome]) -> int:
    """Play the gate forward over the committed steps. The window starts afresh at every stage."""
    if any(later.step <= earlier.step for earlier, later in itertools.pairwise(outcomes)):
        raise UsageError("outcomes must be in the order of their steps, one a step")
    stage = 0
    recent: list[Outcome] = []
    for outcome in outcomes:
        if outcome.step >= step or stage == len(schedule.turns) - 1:
            break
        if outcome.episodes:
            recent = [*recent, outcome][-schedule.window :]
        if len(recent) == schedule.window and _success_rate(recent) >= schedule.threshold:
            stage, recent = stage + 1, []
    return stage


def _success_rate(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.successes for outcome in outcomes) / sum(outcome.episodes for outcome in outcomes)
