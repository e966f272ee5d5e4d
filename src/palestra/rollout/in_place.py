"""The engine of a vector of plain environments: it calls them in the caller's thread, one after the other.

The code of every step is written out in one function, because even a function call per step is measurable.
"""

import gc
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from palestra.adapters import Direct
from palestra.core import Step
from palestra.rollout.slots import ReadySteps, Slot, VectorEngine, VectorStep, new_step, with_final
from palestra.rollout.validation import checked_reset, checked_step
from palestra.trajectory import Content, Phase

__all__ = ["InPlaceEngine"]

_T = TypeVar("_T")


class InPlaceEngine(VectorEngine):
    """Steps plain environments without an event loop."""

    def reset(self, slots: Sequence[Slot]) -> list[Step]:
        return [self._begin(slot) for slot in slots]

    def step(self, slots: Sequence[Slot], actions: Sequence[str]) -> VectorStep:
        with _collections_later():
            return self._advance(slots, actions)

    def send(self, slots: Sequence[Slot], actions: Mapping[int, str], ready: ReadySteps) -> None:
        steps = self._advance([slots[index] for index in actions], list(actions.values()))
        columns = (steps.observations, *(array.tolist() for array in steps[1:4]), steps.infos)
        for index, *step in zip(actions, *columns, strict=True):
            ready.put((index, Step(*step)))

    def close(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            self._discard(slot)

    def _advance(self, slots: Sequence[Slot], actions: Sequence[str]) -> VectorStep:
        observations: list[Content] = []
        infos: list[dict[str, Any]] = []
        # Most rewards are 0 and most episodes continue: only the others are written.
        rewards, terminated, truncated = np.zeros(len(slots)), np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        place = -1
        # Each step is unpacked at once: keeping thousands of tuples would cost more.
        for slot, action in zip(slots, actions, strict=True):
            place += 1
            try:
                observation, reward, has_terminated, was_truncated, info = slot.advance(action)  # type: ignore[misc]  # set by reset
                if reward.__class__ is not float or info.__class__ is not dict:
                    unchecked = (observation, reward, has_terminated, was_truncated, info)
                    observation, reward, has_terminated, was_truncated, info = checked_step(unchecked)
            except (Exception, SystemExit) as error:
                observation, reward, has_terminated, was_truncated, info = self._replace(slot, error, Phase.STEP)
            if has_terminated or was_truncated:
                terminated[place], truncated[place] = has_terminated, was_truncated
                if not slot.ended:
                    observation, info = self._end(slot, observation, info)
            if reward:
                rewards[place] = reward
            observations.append(observation)
            infos.append(info)
        return VectorStep(observations, rewards, terminated, truncated, infos)

    def _begin(self, slot: Slot, action: str = "") -> Step:
        """Begin the next episode; ``action`` was meant for the last one and is ignored."""
        task = self._next_task(slot)
        try:
            if slot.env is None:
                slot.env = self._make_env()
            assert isinstance(slot.env, Direct)
            observation, info = checked_reset(slot.env.env.reset(task=task))
        except (Exception, SystemExit) as error:
            return self._replace(slot, error, Phase.RESET)
        slot.advance = slot.env.env.step
        return new_step(Step, (observation, 0.0, False, False, info))

    def _end(self, slot: Slot, observation: Content, info: dict[str, Any]) -> tuple[Content, dict[str, Any]]:
        """The observation and the info that the last step of an episode returns."""
        if self._same_step:
            first = self._begin(slot)
            return first[0], with_final(first[4], observation, info)
        slot.ended = True
        slot.advance = partial(self._begin, slot)
        return observation, info

    def _replace(self, slot: Slot, error: BaseException, phase: Phase) -> Step:
        """Close the environment that failed; the next step begins an episode in a new one."""
        slot.advance = partial(self._begin, slot)
        self._discard(slot)
        return self._failed(slot, error, phase)

    @staticmethod
    def _discard(slot: Slot) -> None:
        env, slot.env = slot.env, None
        if env is None:
            return
        try:
            _finish(env.close())
        except (Exception, SystemExit):  # the environment is discarded; its failure has been reported
            return


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
