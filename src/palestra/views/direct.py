"""A plain environment on the event loop: called in place, watched for holding everybody up."""

import warnings
from time import perf_counter
from typing import Any

from palestra.core import AsyncEnv, Env, Step
from palestra.errors import HeldLoop
from palestra.trajectory import Content, Task

__all__ = ["LONGEST_HOLD", "Direct", "as_async"]

LONGEST_HOLD = 0.1
"""Seconds a plain environment may keep the event loop before it is named in a warning."""

_named: set[tuple[type, str]] = set()


def as_async(env: Env | AsyncEnv) -> AsyncEnv:
    """The async view of an environment that exists already."""
    return env if isinstance(env, AsyncEnv) else Direct(env)


class Direct(AsyncEnv):
    """A plain ``Env`` seen as an ``AsyncEnv``. Nothing here waits."""

    def __init__(self, env: Env) -> None:
        self.env = env

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        began = perf_counter()
        result = self.env.reset(seed=seed, task=task)
        if perf_counter() - began > LONGEST_HOLD:
            _warn(self.env, "reset", perf_counter() - began)
        return result

    async def step(self, action: str) -> Step:
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
        if name == "env":  # half built
            raise AttributeError(name)
        return getattr(self.env, name)


def _warn(env: Env, verb: str, seconds: float) -> None:
    kind = type(env.unwrapped)
    if (kind, verb) in _named:
        return
    _named.add((kind, verb))
    warnings.warn(
        f"{kind.__module__}.{kind.__qualname__}.{verb}() held the event loop for {seconds * 1000:.0f} ms, and with it every "
        f"other episode of this process. Set `blocking = True` on the class (it then runs in a worker process), or make it "
        f"an AsyncEnv that awaits.",
        HeldLoop,
        stacklevel=2,
    )
