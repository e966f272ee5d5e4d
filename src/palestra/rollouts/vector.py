"""Many environments behind one Gym-like object, in lock step or in completion order.

``step`` takes one action per environment and waits for all of them. ``send`` takes actions for some environments, and ``recv``
returns the steps that have ended. An environment whose episode ends is reset automatically, in one of two ways:

``same_step``   the last step of an episode returns the first observation of the next one; the last observation and info are
                ``info["final_observation"]`` and ``info["final_info"]``.
``next_step``   the last step of an episode returns its last observation; the next step ignores its action and resets.

An environment that fails is replaced. Its step is truncated, its reward is NaN (not 0), and ``info["failure"]`` says what
happened. The other environments are not affected.

Plain environments are called in place (``in_place``) at almost no extra cost; others run on a background loop (``on_loop``).
"""

import operator
import queue
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from palestra.adapters import Direct
from palestra.core import AsyncEnv, Step
from palestra.errors import EpisodeOver, UsageError
from palestra.foundation.seeding import derive_seed, fresh_seed
from palestra.registry import make_async
from palestra.rollouts.in_place import InPlaceEngine
from palestra.rollouts.on_loop import LoopEngine
from palestra.rollouts.options import check_seconds, check_whole_number
from palestra.rollouts.slots import ReadySteps, Slot, VectorEngine, VectorStep
from palestra.trajectory import Content

__all__ = ["Autoreset", "VectorEnv", "VectorStep", "make_vec"]

Autoreset = Literal["same_step", "next_step"]


class VectorEnv:
    """Environments side by side. Close it, or use it in a ``with`` block.

    Args:
        makers: For each environment, the id of its tasks and the function that makes it.
        autoreset: When an environment whose episode ended is reset; see the module.
        deadline: Seconds per call of an environment that does not run in place.
        async_mode: Call plain environments on the background loop, too.
        seed: The seed of a ``reset`` without one; ``None`` takes a new one.
    """

    def __init__(
        self,
        makers: Sequence[tuple[str, Callable[[], AsyncEnv]]],
        *,
        autoreset: Autoreset = "same_step",
        deadline: float = 60.0,
        async_mode: bool = False,
        seed: int | None = None,
    ) -> None:
        if not makers:
            raise UsageError("a vector needs at least one environment")
        if autoreset not in ("same_step", "next_step"):
            raise UsageError(f'autoreset is "same_step" or "next_step", got {autoreset!r}')
        check_seconds("deadline", deadline)
        if seed is not None:
            check_whole_number("seed", seed)
        same_step = autoreset == "same_step"
        self._slots = [Slot(index, make_env, name, make_env()) for index, (name, make_env) in enumerate(makers)]
        self._seed = seed
        self._begun = False
        self._busy: set[int] = set()
        self._ready: ReadySteps = queue.SimpleQueue()
        self._engine: VectorEngine
        if not async_mode and all(isinstance(slot.env, Direct) for slot in self._slots):
            self._engine = InPlaceEngine(same_step=same_step)
        else:
            self._engine = LoopEngine(same_step=same_step, deadline=deadline)

    @property
    def num_envs(self) -> int:
        """The number of environments, as ``len(self)``: Gymnasium and GEM call it so."""
        return len(self)

    def __len__(self) -> int:
        return len(self._slots)

    def reset(self, seed: int | Sequence[int] | None = None) -> tuple[list[Content], list[dict[str, Any]]]:
        """Begin an episode in every environment.

        Args:
            seed: Environment ``i`` plays a task of its own, derived from ``seed``. With a sequence it plays the task
                ``seed[i]``, as ``make(id).reset(seed=seed[i])`` does.
        """
        self._refuse_while_busy("reset")
        given: Any = seed  # of any type, whatever the annotation says
        if given is None:
            given = fresh_seed() if self._seed is None else self._seed
        if isinstance(given, Sequence) and not isinstance(given, str):
            if len(given) != len(self._slots):
                raise UsageError(f"{len(self._slots)} environments need as many seeds, got {len(given)}")
            for number in given:
                check_whole_number("seed", number)
            seeds = [operator.index(number) - 1 for number in given]  # an episode adds 1 to the seed of the latest one
        else:
            check_whole_number("seed", given)
            seeds = [derive_seed(operator.index(given), "vector", slot.index) for slot in self._slots]
        self._begun = True
        for slot, first in zip(self._slots, seeds, strict=True):
            slot.seed = first
        firsts = self._engine.reset(self._slots)
        return [first.observation for first in firsts], [first.info for first in firsts]

    def step(self, actions: Sequence[str]) -> VectorStep:
        """Take one action per environment, and wait for all of them."""
        self._refuse_before_reset()
        if len(actions) != len(self._slots):
            raise UsageError(f"{len(self._slots)} environments need as many actions, got {len(actions)}")
        self._refuse_while_busy("step")
        return self._engine.step(self._slots, actions)

    def send(self, actions: Mapping[int, str]) -> None:
        """Start a step in some environments. ``recv`` returns the steps in the order in which they end."""
        self._refuse_before_reset()
        for index in actions:
            if not 0 <= index < len(self._slots):
                raise UsageError(f"there is no environment {index}: they are numbered 0 to {len(self._slots) - 1}")
            if index in self._busy:
                raise UsageError(f"environment {index} has not finished its last action: recv() it first")
        self._busy.update(actions)
        self._engine.send(self._slots, actions, self._ready)

    def recv(self, timeout: float | None = None) -> dict[int, Step]:
        """Return every step that has ended; wait for the first one, up to ``timeout`` seconds."""
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
        """Close every environment, and cancel the steps under way. A second call does nothing."""
        slots, self._slots = self._slots, []
        self._begun = False
        self._engine.close(slots)
        self._busy.clear()

    def __enter__(self) -> "VectorEnv":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_before_reset(self) -> None:
        if not self._begun:
            raise EpisodeOver("these episodes have not begun, or the vector has been closed. Call reset() first.")

    def _refuse_while_busy(self, verb: str) -> None:
        if self._busy:
            raise UsageError(f"{verb}() while environments {sorted(self._busy)[:5]} are under way: recv() them first")


def make_vec(
    ids: str | Sequence[str],
    num_envs: int | None = None,
    *,
    autoreset: Autoreset = "same_step",
    deadline: float = 60.0,
    async_mode: bool = False,
    seed: int | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> VectorEnv:
    """Make environments to be stepped together.

    Args:
        ids: An id, as in ``make``, or one per environment.
        num_envs: The number of environments of one id; 1 by default. A list of ids says it already.
        autoreset: When an environment whose episode ended is reset; see ``VectorEnv``.
        deadline: Seconds per call of an environment that does not run in place.
        async_mode: Call plain environments on the background loop, too. Results are the same.
        seed: The seed of a ``reset`` without one.
        vec_kwargs: For each environment, keyword arguments of its class.
        options: ``wrappers``, and keyword arguments of the classes, as in ``make``.

    Example::

        envs = palestra.make_vec("game:GuessTheNumber-v0", 8)
        observations, infos = envs.reset(seed=0)
    """
    if num_envs is not None:
        check_whole_number("num_envs", num_envs, at_least=1)
    if isinstance(ids, str):
        names = [ids] * (1 if num_envs is None else num_envs)
    else:
        names = list(ids)
        if num_envs not in (None, len(names)):
            raise UsageError(f"num_envs={num_envs}, but {len(names)} ids are named: leave num_envs out")
    each_kwargs = [{}] * len(names) if vec_kwargs is None else list(vec_kwargs)
    if len(each_kwargs) != len(names):
        raise UsageError(f"{len(names)} environments need as many vec_kwargs, got {len(each_kwargs)}")
    makers = [
        (name, partial(make_async, name, **{**kwargs, **options})) for name, kwargs in zip(names, each_kwargs, strict=True)
    ]
    return VectorEnv(makers, autoreset=autoreset, deadline=deadline, async_mode=async_mode, seed=seed)
