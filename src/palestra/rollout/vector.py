"""Many environments behind one Gym-like object, in lock step or in completion order.

``step`` takes an action for each and waits for all; ``send`` and ``recv`` take some and hand over whichever is ready. An
environment that ends is reset by itself, and its last observation and info are kept, in one of two ways:

``same_step``   the step that ends an episode already shows the next one's first observation; the last observation and info
                are ``info["final_observation"]`` and ``info["final_info"]``.
``next_step``   the step that ends an episode shows its last observation; the step after it ignores its action and resets.

An environment that fails is replaced. Its step is truncated, its reward is NaN (not a zero), ``info["failure"]`` says what
happened, and its neighbours never notice.

Plain environments are called in place and cost next to nothing beyond themselves; all others run on a background loop.
"""

import asyncio
import gc
import queue
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from palestra.core import AsyncEnv, Step
from palestra.errors import EnvError, EpisodeOver, UsageError
from palestra.registry import make_async
from palestra.rollout.episode import checked_step
from palestra.seeding import derive_seed, fresh_seed
from palestra.trajectory import Content, Failure, Phase, Task
from palestra.views import Direct, LoopThread

__all__ = ["Autoreset", "VectorEnv", "VectorStep", "make_vec"]

Autoreset = Literal["same_step", "next_step"]

_T = TypeVar("_T")

_new_step = tuple.__new__
"""What ``Step(...)`` comes to, at a third of its price: this file makes millions of them."""


class VectorStep(NamedTuple):
    """One step of every environment."""

    observations: list[Content]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    infos: list[dict[str, Any]]


@dataclass(slots=True)
class _Slot:
    """One environment's place."""

    index: int
    env: AsyncEnv | None = None
    seed: int = 0
    """Of the latest task; the next one's is one more."""
    ended: bool = True
    advance: Callable[[str], Step] | None = None
    """In place: a step of the episode, or, when it has ended, the beginning of the next."""


class VectorEnv:
    """``n`` environments from ``make_env``. Close it, or use it in a ``with`` block."""

    def __init__(
        self,
        make_env: Callable[[], AsyncEnv],
        n: int,
        *,
        name: str,
        autoreset: Autoreset = "same_step",
        deadline: float = 60.0,
    ) -> None:
        if n < 1:
            raise UsageError(f"a vector needs at least one environment, got n={n}")
        if autoreset not in ("same_step", "next_step"):
            raise UsageError(f'autoreset is "same_step" or "next_step", got {autoreset!r}')
        self._make_env = make_env
        self._name = name
        self._same_step = autoreset == "same_step"
        self._deadline = deadline
        self._slots = [_Slot(index, make_env()) for index in range(n)]
        self._begun = False
        self._busy: set[int] = set()
        plain = all(isinstance(slot.env, Direct) for slot in self._slots)
        self._thread = None if plain else LoopThread.hold()
        self._ready: queue.SimpleQueue[tuple[int, Step | BaseException]] = queue.SimpleQueue()

    def __len__(self) -> int:
        return len(self._slots)

    def reset(self, *, seed: int | None = None) -> tuple[list[Content], list[dict[str, Any]]]:
        """Begin an episode everywhere, all at once. Environment ``i`` plays a task of its own, derived from ``seed``."""
        self._refuse_while_busy("reset")
        self._begun = True
        root = fresh_seed() if seed is None else seed
        for slot in self._slots:
            slot.seed = derive_seed(root, "vector", slot.index)
        if self._thread is None:
            firsts = [self._begin_in_place(slot) for slot in self._slots]
        else:
            firsts = self._thread.run(_together([self._begin(slot) for slot in self._slots]))
        return [first.observation for first in firsts], [first.info for first in firsts]

    def step(self, actions: Sequence[str]) -> VectorStep:
        """One action for each environment; waits for all of them."""
        self._refuse_before_reset()
        if len(actions) != len(self._slots):
            raise UsageError(f"{len(self._slots)} environments need as many actions, got {len(actions)}")
        self._refuse_while_busy("step")
        if self._thread is None:
            with _collections_later():
                return self._advance_in_place(self._slots, actions)
        steps = self._thread.run(_together(list(map(self._advance, self._slots, actions))))
        observations, rewards, terminated, truncated, infos = map(list, zip(*steps, strict=True))
        return VectorStep(observations, np.array(rewards), np.array(terminated), np.array(truncated), infos)

    def send(self, actions: Mapping[int, str]) -> None:
        """Set some environments going. Their steps come out of ``recv`` in the order in which they end."""
        self._refuse_before_reset()
        for index in actions:
            if not 0 <= index < len(self._slots):
                raise UsageError(f"there is no environment {index}: they are numbered 0 to {len(self._slots) - 1}")
            if index in self._busy:
                raise UsageError(f"environment {index} has not finished its last action: recv() it first")
        self._busy.update(actions)
        if self._thread is None:
            steps = self._advance_in_place([self._slots[index] for index in actions], list(actions.values()))
            for index, *step in zip(
                actions, steps.observations, *(array.tolist() for array in steps[1:4]), steps.infos, strict=True
            ):
                self._ready.put((index, Step(*step)))
            return
        for index, action in actions.items():
            work = self._report(index, self._advance(self._slots[index], action))
            asyncio.run_coroutine_threadsafe(work, self._thread.loop)

    def recv(self, timeout: float | None = None) -> dict[int, Step]:
        """Every step that has ended, at least one; waits for the first, up to ``timeout`` seconds."""
        if not self._busy:
            raise UsageError("nothing was sent: send() actions first")
        ready: dict[int, Step] = {}
        while not ready or not self._ready.empty():
            try:
                index, step = self._ready.get(timeout=timeout)
            except queue.Empty:
                break
            self._busy.discard(index)
            if isinstance(step, BaseException):
                raise step
            ready[index] = step
        return ready

    def close(self) -> None:
        """Close every environment; doing it twice is harmless."""
        slots, self._slots = self._slots, []
        self._begun = False
        try:
            for slot in slots if self._thread is None else ():
                _finish(self._discard(slot))
            if self._thread is not None:
                self._thread.run(_together([self._discard(slot) for slot in slots]))
        finally:
            if self._thread is not None:
                thread, self._thread = self._thread, None
                thread.release()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # In place, for plain environments: whatever happens at every step is written out, since even a call would be felt.

    def _advance_in_place(self, slots: Sequence[_Slot], actions: Sequence[str]) -> VectorStep:
        observations: list[Content] = []
        infos: list[dict[str, Any]] = []
        # Most rewards are 0 and most episodes go on: only the others are written down.
        rewards, terminated, truncated = np.zeros(len(slots)), np.zeros(len(slots), bool), np.zeros(len(slots), bool)
        place = -1
        # Steps are taken apart as they come, and not kept by the thousand.
        for slot, action in zip(slots, actions, strict=True):
            place += 1
            try:
                observation, reward, has_terminated, was_truncated, info = slot.advance(action)  # type: ignore[misc]  # set by reset
                if reward.__class__ is not float or info.__class__ is not dict:
                    unchecked = (observation, reward, has_terminated, was_truncated, info)
                    observation, reward, has_terminated, was_truncated, info = checked_step(unchecked)
            except (Exception, SystemExit) as error:
                observation, reward, has_terminated, was_truncated, info = self._replace_in_place(slot, error, Phase.STEP)
            if has_terminated or was_truncated:
                terminated[place], truncated[place] = has_terminated, was_truncated
                if not slot.ended:
                    observation, info = self._end_in_place(slot, observation, info)
            if reward:
                rewards[place] = reward
            observations.append(observation)
            infos.append(info)
        return VectorStep(observations, rewards, terminated, truncated, infos)

    def _begin_in_place(self, slot: _Slot, action: str = "") -> Step:
        """Begin the next episode; an action for the last one is ignored."""
        task = self._next_task(slot)
        try:
            if slot.env is None:
                slot.env = self._make_env()
            assert isinstance(slot.env, Direct)
            observation, info = slot.env.env.reset(task=task)
        except (Exception, SystemExit) as error:
            return self._replace_in_place(slot, error, Phase.RESET)
        slot.advance = slot.env.env.step
        return _new_step(Step, (observation, 0.0, False, False, info))

    def _end_in_place(self, slot: _Slot, observation: Content, info: dict[str, Any]) -> tuple[Content, dict[str, Any]]:
        """What to show of the step that ends an episode."""
        if self._same_step:
            first = self._begin_in_place(slot)
            return first[0], _with_last(first[4], observation, info)
        slot.ended = True
        slot.advance = partial(self._begin_in_place, slot)
        return observation, info

    def _replace_in_place(self, slot: _Slot, error: BaseException, phase: Phase) -> Step:
        slot.advance = partial(self._begin_in_place, slot)
        return _finish(self._replace(slot, error, phase))

    # On the loop, for all others.

    async def _begin(self, slot: _Slot) -> Step:
        task = self._next_task(slot)
        try:
            if slot.env is None:
                slot.env = self._make_env()
            observation, info = await self._timed(slot.env.reset(task=task))
        except (Exception, SystemExit) as error:
            return await self._replace(slot, error, Phase.RESET)
        return Step(observation, 0.0, False, False, info)

    async def _advance(self, slot: _Slot, action: str) -> Step:
        if slot.ended:
            return await self._begin(slot)
        assert slot.env is not None
        try:
            step = checked_step(await self._timed(slot.env.step(action)))
        except (Exception, SystemExit) as error:
            return await self._replace(slot, error, Phase.STEP)
        if step.terminated or step.truncated:
            slot.ended = True
            return _joined(step, await self._begin(slot)) if self._same_step else step
        return step

    # Either way.

    def _next_task(self, slot: _Slot) -> Task:
        slot.ended = False
        slot.seed += 1  # the environment hashes the seed it is given, so neighbours are as good as strangers
        return Task(self._name, slot.seed)

    async def _timed(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:  # nothing in a plain environment waits, and there is no loop to time it by
            return await work
        try:
            async with asyncio.timeout(self._deadline) as clock:
                return await work
        except TimeoutError:
            if not clock.expired():
                raise
            late = EnvError(f"the deadline of {self._deadline:g} s passed")
            late.kind = "Deadline"
            raise late from None

    async def _replace(self, slot: _Slot, error: BaseException, phase: Phase) -> Step:
        """Give up the environment that failed; the next step begins a new episode in a new one."""
        failure = Failure.of(error, phase)
        slot.ended = True
        await self._discard(slot)
        return Step("", float("nan"), False, True, {"failure": failure})

    async def _discard(self, slot: _Slot) -> None:
        env, slot.env = slot.env, None
        if env is None:
            return
        try:
            await self._timed(env.close())
        except (Exception, SystemExit):  # it is being thrown away; what made it fail has been reported
            return

    async def _report(self, index: int, work: Coroutine[Any, Any, Step]) -> None:
        try:
            self._ready.put((index, await work))
        except BaseException as error:
            self._ready.put((index, error))
            raise

    def _refuse_before_reset(self) -> None:
        if not self._begun:
            raise EpisodeOver("these episodes have not begun, or the vector has been closed. Call reset() first.")

    def _refuse_while_busy(self, verb: str) -> None:
        if self._busy:
            raise UsageError(f"{verb}() while environments {sorted(self._busy)[:5]} are under way: recv() them first")


@contextmanager
def _collections_later() -> Iterator[None]:
    """Hold the garbage collector back.

    It runs when objects become more, taking that for a sign of cycles. Thousands of observations and infos that are kept until
    the end of a vector step are none, and searching through all there is for them costs more than keeping them.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def _together(works: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]


def _joined(last: Step, first: Step) -> Step:
    """The end of one episode and the beginning of the next as one step."""
    return _new_step(Step, (first[0], last[1], last[2], last[3], _with_last(first[4], last[0], last[4])))


def _with_last(first: dict[str, Any], observation: Content, info: dict[str, Any]) -> dict[str, Any]:
    """The info of a first observation, with what the episode before it showed last."""
    return {**first, "final_observation": observation, "final_info": info}


def _finish(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value  # type: ignore[no-any-return]
    work.close()
    raise AssertionError("a plain environment waited")


def make_vec(id: str, n: int, *, autoreset: Autoreset = "same_step", deadline: float = 60.0, **options: Any) -> VectorEnv:
    """``n`` environments of ``id``. ``options`` are those of ``make``: ``wrappers``, and keywords of the class."""
    return VectorEnv(lambda: make_async(id, **options), n, name=id, autoreset=autoreset, deadline=deadline)
