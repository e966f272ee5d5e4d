"""The engine of a vector of async and blocking environments: they run at the same time on the background event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from palestra.adapters.loop_thread import LoopThread
from palestra.core import Step
from palestra.errors import EnvError
from palestra.rollouts.driving import CallOutcome, Overrun, tried
from palestra.rollouts.slots import ReadySteps, Slot, VectorEngine, VectorStep
from palestra.rollouts.validation import checked_reset, checked_step
from palestra.trajectory import Phase

__all__ = ["LoopEngine"]

_T = TypeVar("_T")


class LoopEngine(VectorEngine):
    """Steps environments on the background loop, each call within ``deadline`` seconds."""

    def __init__(self, *, same_step: bool, deadline: float) -> None:
        super().__init__(same_step=same_step)
        self._deadline = deadline
        self._thread: LoopThread | None = LoopThread.hold()
        self._sent: set[asyncio.Task[Any]] = set()
        """The steps under way that ``send`` has started."""

    def reset(self, slots: Sequence[Slot]) -> list[Step]:
        return self._run_all([self._begin(slot) for slot in slots])

    def step(self, slots: Sequence[Slot], actions: Sequence[str]) -> VectorStep:
        steps = self._run_all(list(map(self._advance, slots, actions)))
        observations, rewards, terminated, truncated, infos = map(list, zip(*steps, strict=True))
        return VectorStep(observations, np.array(rewards), np.array(terminated), np.array(truncated), infos)

    def send(self, slots: Sequence[Slot], actions: Mapping[int, str], ready: ReadySteps) -> None:
        assert self._thread is not None
        for index, action in actions.items():
            work = self._report(index, self._advance(slots[index], action), ready)
            asyncio.run_coroutine_threadsafe(work, self._thread.loop)

    def close(self, slots: Sequence[Slot]) -> None:
        if self._thread is None:
            return
        try:
            if not self._thread.elsewhere:  # what the environments hold belongs to the parent of a forked child
                self._thread.run(self._close(slots))
        finally:
            thread, self._thread = self._thread, None
            thread.release()

    async def _close(self, slots: Sequence[Slot]) -> None:
        # A step that continues would begin the next episode, in an environment that is never closed.
        under_way = list(self._sent)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        await _together([self._discard(slot) for slot in slots])

    def _run_all(self, works: list[Coroutine[Any, Any, _T]]) -> list[_T]:
        if not works or self._thread is None:
            return []
        return self._thread.run(_together(works))

    async def _begin(self, slot: Slot) -> Step:
        task = self._next_task(slot)
        try:
            env = slot.env = slot.env or slot.make_env()
        except BaseException as error:  # noqa: BLE001 - a stranger's code may raise anything
            return await self._replace(slot, error, Phase.RESET)
        outcome = await self._called(slot, lambda: env.reset(task=task))
        try:
            observation, info = checked_reset(outcome.result())
        except BaseException as error:  # noqa: BLE001 - as above
            return await self._replace(slot, error, Phase.RESET)
        return Step(observation, 0.0, False, False, info)

    async def _advance(self, slot: Slot, action: str) -> Step:
        if slot.ended:
            return await self._begin(slot)
        env = slot.env
        assert env is not None
        outcome = await self._called(slot, lambda: env.step(action))
        try:
            step = checked_step(outcome.result())
        except BaseException as error:  # noqa: BLE001 - as above
            return await self._replace(slot, error, Phase.STEP)
        if step.terminated or step.truncated:
            slot.ended = True
            return _joined(step, await self._begin(slot)) if self._same_step else step
        return step

    async def _called(self, slot: Slot, verb: Callable[[], Coroutine[Any, Any, Any]], *, cleanup: bool = False) -> CallOutcome:
        """Call an environment within the deadline and return the outcome. A cancellation of the caller is raised."""

        async def call() -> Any:
            return await verb()

        outcome = await tried(call(), self._deadline, slot.owner, cleanup=cleanup)
        if not isinstance(outcome.error, Overrun):
            return outcome
        late = EnvError(f"the deadline of {self._deadline:g} s passed")
        late.kind = "Deadline"
        return CallOutcome(error=late)

    async def _replace(self, slot: Slot, error: BaseException, phase: Phase) -> Step:
        """Close the environment that failed; the next step begins an episode in a new one."""
        failed = self._failed(slot, error, phase)
        await self._discard(slot)
        return failed

    async def _discard(self, slot: Slot) -> None:
        env, slot.env = slot.env, None
        if env is None:
            return
        await self._called(slot, env.close, cleanup=True)  # if it fails: the failure of the episode has been reported

    async def _report(self, index: int, work: Coroutine[Any, Any, Step], ready: ReadySteps) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sent.add(task)
        try:
            ready.put((index, await work))
        except BaseException as error:
            ready.put((index, error))
            raise
        finally:
            self._sent.discard(task)


async def _together(works: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]


def _joined(last: Step, first: Step) -> Step:
    """The last step of one episode and the beginning of the next as one step."""
    info = {**first.info, "final_observation": last.observation, "final_info": last.info}
    return Step(first.observation, last.reward, last.terminated, last.truncated, info)
