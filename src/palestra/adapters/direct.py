"""A plain environment on the event loop: called in place, with a warning when it blocks the loop."""

import warnings
from time import perf_counter
from typing import Any

from palestra.adapters.blocking import Blocking
from palestra.adapters.guarded import Guarded
from palestra.core import AsyncEnv, Env, Step
from palestra.errors import EventLoopBlocked
from palestra.trajectory import Content, Task

__all__ = ["LONGEST_HOLD", "Direct", "as_async", "unblocked"]

LONGEST_HOLD = 0.1
"""Seconds that a plain environment may block the event loop without a warning."""

_named: set[tuple[type, str]] = set()


def as_async(env: Env | AsyncEnv) -> AsyncEnv:
    """Return ``env`` as an async environment.

    Args:
        env: A plain environment, such as one that ``make`` returned, or an async one.

    Returns:
        The environment itself if it is async, the async environment inside a blocking view, or an adapter that calls a plain
        environment in place.
    """
    env = unblocked(env)
    return env if isinstance(env, AsyncEnv) else Direct(env)


def unblocked(env: Env | AsyncEnv) -> Env | AsyncEnv:
    """Return the async environment inside a blocking view of it; any other environment as it is."""
    inside = env.env if isinstance(env, Guarded) else env
    return inside.env if isinstance(inside, Blocking) else env


class Direct(AsyncEnv):
    """A plain ``Env`` as an ``AsyncEnv``. Its methods run in place and never wait."""

    def __init__(self, env: Env) -> None:
        self.env = env

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        began = perf_counter()
        result = self.env.reset(seed=seed, task=task)
        if perf_counter() - began > LONGEST_HOLD:
            _warn(self.env, "reset", perf_counter() - began)
        return result

    async def step(self, action: str) -> Step:
        return self.step_now(action)

    def step_now(self, action: str) -> Step:
        """``await step(action)`` without a coroutine, for code that steps thousands of times per second."""
        began = perf_counter()
        result = self.env.step(action)
        if perf_counter() - began > LONGEST_HOLD:
            _warn(self.env, "step", perf_counter() - began)
        return result

    async def close(self) -> None:
        self.env.close()

    async def oracle(self) -> str:
        return self.env.oracle()

    async def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    async def seed_actions(self, seed: int) -> None:
        self.env.seed_actions(seed)

    async def fork(self) -> AsyncEnv:
        return Direct(self.env.fork())

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not set yet, while unpickling
            raise AttributeError(name)
        return getattr(self.env, name)


def _warn(env: Env, verb: str, seconds: float) -> None:
    kind = type(env.unwrapped)
    if (kind, verb) in _named:
        return
    _named.add((kind, verb))
    warnings.warn(
        f"{kind.__module__}.{kind.__qualname__}.{verb}() held the event loop for {seconds * 1000:.0f} ms, and every other "
        f"episode of this process waited. Set `blocking = True` on the class (it then runs in a worker process), or make it "
        f"an AsyncEnv that awaits.",
        EventLoopBlocked,
        stacklevel=2,
    )
