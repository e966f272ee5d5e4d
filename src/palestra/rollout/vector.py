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
import queue
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        firsts = list(self._each(self._begin_in_place, self._begin))
        return [first.observation for first in firsts], [first.info for first in firsts]

    def step(self, actions: Sequence[str]) -> VectorStep:
        """One action for each environment; waits for all of them."""
        self._refuse_before_reset()
        if len(actions) != len(self._slots):
            raise UsageError(f"{len(self._slots)} environments need as many actions, got {len(actions)}")
        self._refuse_while_busy("step")
        steps = self._each(self._advance_in_place, self._advance, actions)
        observations: list[Content] = []
        rewards: list[float] = []
        terminated: list[bool] = []
        truncated: list[bool] = []
        infos: list[dict[str, Any]] = []
        # Taken apart as they come: thousands of Step objects kept until the end would set the garbage collector off.
        for observation, reward, has_terminated, was_truncated, info in steps:
            observations.append(observation)
            rewards.append(reward)
            terminated.append(has_terminated)
            truncated.append(was_truncated)
            infos.append(info)
        return VectorStep(observations, np.array(rewards), np.array(terminated), np.array(truncated), infos)

    def send(self, actions: Mapping[int, str]) -> None:
        """Set some environments going. Their steps come out of ``recv`` in the order in which they end."""
        self._refuse_before_reset()
        for index in actions:
            if not 0 <= index < len(self._slots):
                raise UsageError(f"there is no environment {index}: they are numbered 0 to {len(self._slots) - 1}")
            if index in self._busy:
                raise UsageError(f"environment {index} has not finished its last action: recv() it first")
        for index, action in actions.items():
            slot = self._slots[index]
            self._busy.add(index)
            if self._thread is None:
                self._ready.put((index, self._advance_in_place(slot, action)))
            else:
                asyncio.run_coroutine_threadsafe(self._report(index, self._advance(slot, action)), self._thread.loop)

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

    # One environment, twice: in place for plain ones, where even an unused coroutine would be felt, and on the loop for others.

    def _begin_in_place(self, slot: _Slot) -> Step:
        task = self._next_task(slot)
        try:
            if slot.env is None:
                slot.env = self._make_env()
            assert isinstance(slot.env, Direct)
            observation, info = slot.env.env.reset(task=task)
        except (Exception, SystemExit) as error:
            return _finish(self._replace(slot, error, Phase.RESET))
        return _new_step(Step, (observation, 0.0, False, False, info))

    def _advance_in_place(self, slot: _Slot, action: str) -> Step:
        if slot.ended:
            return self._begin_in_place(slot)
        try:
            step: Step = slot.env.env.step(action)  # type: ignore[union-attr]  # a Direct: asserting it here costs as much
            _, reward, terminated, truncated, info = step
            if reward.__class__ is not float or info.__class__ is not dict:
                step = checked_step(step)
        except (Exception, SystemExit) as error:
            return _finish(self._replace(slot, error, Phase.STEP))
        if terminated or truncated:
            slot.ended = True
            return _joined(step, self._begin_in_place(slot)) if self._same_step else step
        return step

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

    # All environments.

    def _each(
        self, in_place: Callable[..., Step], on_the_loop: Callable[..., Coroutine[Any, Any, Step]], *arguments: Sequence[str]
    ) -> Iterable[Step]:
        if self._thread is None:
            return map(in_place, self._slots, *arguments)
        return self._thread.run(_together(list(map(on_the_loop, self._slots, *arguments))))

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


async def _together(works: list[Coroutine[Any, Any, _T]]) -> list[_T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]


def _joined(last: Step, first: Step) -> Step:
    """The end of one episode and the beginning of the next as one step."""
    info = {**first[4], "final_observation": last[0], "final_info": last[4]}
    return _new_step(Step, (first[0], last[1], last[2], last[3], info))


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
