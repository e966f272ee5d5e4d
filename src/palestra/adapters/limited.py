"""Turn limits: an episode is truncated after the number of turns that its environment declares.

A limit can be declared in three places: ``max_turns`` on the class, ``register(max_turns=…)``, and ``info["max_turns"]`` of the
reset. Where several are declared, the smallest applies. Whatever builds an environment from its spec applies the limit, so it
holds in ``make``, ``make_async``, ``make_vec``, rollouts, workers and servers alike.

An environment without a limit pays nothing per step: ``reset`` then puts the environment's own ``step`` in place of ours.
"""

from typing import Any

from palestra.adapters.passing import Passing
from palestra.adapters.wrapper import Wrapper
from palestra.core import AsyncEnv, Env, Step
from palestra.errors import EnvError, UsageError
from palestra.trajectory import Content, StopReason, Task

__all__ = ["AsyncLimited", "Limited", "TurnLimit", "cut"]


def cut(step: Any, reason: StopReason) -> Any:
    """Return ``step`` as the last one of its episode, unless the environment ended the episode itself."""
    if not isinstance(step, tuple) or len(step) != 5 or step[2] or step[3]:
        return step
    return Step(step[0], step[1], False, True, {**step[4], "stop_reason": reason})


def turns_until_cut(author: Env | AsyncEnv, registered: int | None, result: Any) -> int | None:
    """Return the limit of the episode that begins with ``result`` of ``reset``; ``None`` if there is nothing to count."""
    info = result[1] if isinstance(result, tuple) and len(result) == 2 else None
    of_episode = info.get("max_turns") if isinstance(info, dict) else None
    of_class = getattr(author, "max_turns", None)
    by_author = min((turns for turns in (of_episode, of_class) if type(turns) is int), default=None)
    if author.counts_turns and (registered is None or (by_author is not None and by_author <= registered)):
        return None
    declared = min((turns for turns in (by_author, registered) if turns is not None), default=None)
    if declared is not None and declared < 1:
        raise EnvError(f"{type(author).__qualname__} declares max_turns={declared}; expected at least 1")
    return declared


class Limited(Passing):
    """A plain environment with a turn limit: its own, or the ``registered`` one."""

    def __init__(self, env: Env, registered: int | None = None) -> None:
        super().__init__(env)
        self._registered = registered
        self._left = 0

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        result = self.env.reset(seed=seed, task=task)
        _count(self, turns_until_cut(self.env.unwrapped, self._registered, result))
        return result

    def step(self, action: str) -> Step:
        self._left -= 1
        step = self.env.step(action)
        return cut(step, StopReason.TURN_LIMIT) if self._left <= 0 else step

    def fork(self) -> "Limited":
        twin = Limited(self.env.fork(), self._registered)
        _count(twin, None if "step" in self.__dict__ else self._left)
        return twin


class TurnLimit(Wrapper):
    """Truncates the episode after ``turns`` actions. Training schedules this horizon.

    Args:
        env: The environment.
        turns: The number of actions, at least 1.
    """

    def __init__(self, env: AsyncEnv, turns: int) -> None:
        super().__init__(env)
        if turns < 1:
            raise UsageError(f"turns must be at least 1, got {turns}")
        self.turns = turns
        self._left = turns

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._left = self.turns
        return await self.env.reset(seed=seed, task=task)

    async def step(self, action: str) -> Step:
        self._left -= 1
        step = await self.env.step(action)
        return cut(step, StopReason.TURN_LIMIT) if self._left <= 0 else step


class AsyncLimited(TurnLimit):
    """An async environment with a turn limit: its own, or the ``registered`` one."""

    def __init__(self, env: AsyncEnv, registered: int | None = None) -> None:
        super().__init__(env, 1)
        self._registered = registered

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        result = await self.env.reset(seed=seed, task=task)
        turns = turns_until_cut(self.env.unwrapped, self._registered, result)
        _count(self, turns)
        return result


def _count(view: Limited | AsyncLimited, turns: int | None) -> None:
    """Let ``view`` truncate after ``turns`` more turns. Without a limit, ``view.step`` is the environment's own ``step``."""
    if turns is None:
        view.__dict__["step"] = view.env.step
    else:
        view.__dict__.pop("step", None)
        view._left = turns
