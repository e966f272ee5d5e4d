"""The engine of a vector of plain environments: it calls them in the caller's thread, one after the other.

The code of every step is written out in one function, because even a function call per step is measurable.
"""

import gc
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from palestra.adapters import Direct
from palestra.adapters.interrupts import interrupts
from palestra.core import Step
from palestra.rollouts.slots import ReadySteps, Slot, VectorEngine, VectorStep
from palestra.rollouts.validation import checked_reset, checked_step
from palestra.trajectory import Content, Phase

__all__ = ["InPlaceEngine"]

_T = TypeVar("_T")


class InPlaceEngine(VectorEngine):
    """Steps plain environments without an event loop."""

    def __init__(self, *, same_step: bool) -> None:
        super().__init__(same_step=same_step)
        self._advances: list[Callable[[str], Step]] = []
        """Functions that take the next step of each slot, or begin its next episode: a step need not read the slot itself."""

    def reset(self, slots: Sequence[Slot]) -> list[Step]:
        self._advances = [partial(self._restart, slot) for slot in slots]
        with interrupts.noted():
            return [self._restart(slot) for slot in slots]

    def step(self, slots: Sequence[Slot], actions: Sequence[str]) -> VectorStep:
        with interrupts.noted(), _collections_later():
            return self._advance(slots, self._advances, actions)

    def send(self, slots: Sequence[Slot], actions: Mapping[int, str], ready: ReadySteps) -> None:
        chosen = [slots[index] for index in actions]
        with interrupts.noted():
            steps = self._advance(chosen, [self._advances[index] for index in actions], list(actions.values()))
        columns = (steps.observations, *(array.tolist() for array in steps[1:4]), steps.infos)
        for index, *step in zip(actions, *columns, strict=True):
            ready.put((index, Step(*step)))

    def close(self, slots: Sequence[Slot]) -> None:
        with interrupts.noted():
            for slot in slots:
                self._discard(slot)

    def _advance(self, slots: Sequence[Slot], advances: Sequence[Callable[[str], Step]], actions: Sequence[str]) -> VectorStep:
        observations: list[Content] = []
        infos: list[dict[str, Any]] = []
        # Most rewards are 0 and most episodes continue: only the others are written.
        rewards, terminations, truncations = np.zeros(len(slots)), np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        # Each step is unpacked at once: keeping thousands of tuples would cost more.
        for advance, action in zip(advances, actions, strict=True):
            try:
                observation, reward, terminated, truncated, info = advance(action)
                if reward.__class__ is not float or info.__class__ is not dict:
                    unchecked = (observation, reward, terminated, truncated, info)
                    observation, reward, terminated, truncated, info = checked_step(unchecked)
            except BaseException as error:  # noqa: BLE001 - a stranger may raise anything
                _leave_interrupt(error)
                slot = slots[len(infos)]
                observation, reward, terminated, truncated, info = self._replace(slot, error, Phase.STEP)
            if terminated or truncated:
                terminations[len(infos)], truncations[len(infos)] = terminated, truncated
                slot = slots[len(infos)]
                if not slot.ended:
                    observation, info = self._end(slot, observation, info)
            if reward:
                rewards[len(infos)] = reward
            observations.append(observation)
            infos.append(info)
        return VectorStep(observations, rewards, terminations, truncations, infos)

    def _restart(self, slot: Slot, action: str = "") -> Step:
        """Begin the next episode, as a step; ``action`` was meant for the last one and is ignored."""
        try:
            if slot.env is None:
                slot.env = slot.make_env()
            observation, info = self._first(slot)
        except BaseException as error:  # noqa: BLE001 - as above
            _leave_interrupt(error)
            return self._replace(slot, error, Phase.RESET)
        assert isinstance(slot.env, Direct)
        self._advances[slot.index] = slot.env.env.step
        return Step(observation, 0.0, False, False, info)

    def _first(self, slot: Slot) -> tuple[Content, dict[str, Any]]:
        """The first observation of the next episode and a copy of its info."""
        return checked_reset(slot.env.env.reset(task=self._next_task(slot)))  # type: ignore[union-attr]  # a Direct

    def _end(self, slot: Slot, observation: Content, info: dict[str, Any]) -> tuple[Content, dict[str, Any]]:
        """The observation and the info that the last step of an episode returns."""
        if not self._same_step:
            slot.ended = True
            self._advances[slot.index] = partial(self._restart, slot)
            return observation, info
        try:
            first, first_info = self._first(slot)
        except BaseException as error:  # noqa: BLE001 - as above
            _leave_interrupt(error)
            first, *_, first_info = self._replace(slot, error, Phase.RESET)
        first_info["final_observation"], first_info["final_info"] = observation, info
        return first, first_info

    def _replace(self, slot: Slot, error: BaseException, phase: Phase) -> Step:
        """Close the environment that failed; the next step begins an episode in a new one."""
        self._advances[slot.index] = partial(self._restart, slot)
        self._discard(slot)
        return self._failed(slot, error, phase)

    @staticmethod
    def _discard(slot: Slot) -> None:
        env, slot.env = slot.env, None
        if env is None:
            return
        try:
            _finish(env.close())
        except BaseException as error:  # noqa: BLE001 - the environment is discarded; its failure has been reported
            _leave_interrupt(error)


def _leave_interrupt(error: BaseException) -> None:
    """Raise ``error`` if it is Ctrl-C of the user, and no failure of an environment."""
    if isinstance(error, KeyboardInterrupt) and interrupts.pressed:
        raise error


@contextmanager
def _collections_later() -> Iterator[None]:
    """Pause the garbage collector.

    The collector runs when the number of objects grows, which may be a sign of reference cycles. The thousands of observations
    and infos of a vector step are no cycles, and searching all objects for cycles costs more than keeping them until the end of
    the step.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of a coroutine that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]
    work.close()
    raise AssertionError("a plain environment must not await")
