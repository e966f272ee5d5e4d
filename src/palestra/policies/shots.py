"""Few-shot examples as chat turns. Small models answer nothing without them.

``OracleShots(3)`` plays three other tasks of the episode's environment with its oracle, once, and shows them as turns before
the episode. Their tasks are of the training split, whatever is being played, and their seeds come from a path of their own: so
they are never the task at hand, and nothing that is held out is shown.
"""

import asyncio
from typing import Protocol

import msgspec

from palestra.core import AsyncEnv
from palestra.errors import UsageError
from palestra.registry import make_async
from palestra.seeding import derive_seed
from palestra.trajectory import Message, Task

__all__ = ["FixedShots", "NoShots", "OracleShots", "Shots"]

_LONGEST = 64
"""Turns of one example; an oracle that needs more is no example."""


class Shots(Protocol):
    """Gives the turns to show before an episode: user and assistant in turn, ending with the assistant."""

    async def messages(self, task: Task) -> tuple[Message, ...]:
        """The turns for an episode of ``task``."""
        ...


class NoShots:
    """Shows nothing."""

    async def messages(self, task: Task) -> tuple[Message, ...]:
        return ()


class FixedShots:
    """Shows the same turns everywhere."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._messages = messages

    async def messages(self, task: Task) -> tuple[Message, ...]:
        return self._messages


class OracleShots:
    """Shows ``n`` episodes that the environment's own oracle played on other tasks."""

    def __init__(self, n: int = 3, *, seed: int = 0) -> None:
        if n < 1:
            raise UsageError(f"n must be at least 1, got {n}; for none leave the shots out")
        self.n = n
        self.seed = seed
        self._played: dict[Task, asyncio.Task[tuple[Message, ...]]] = {}

    async def messages(self, task: Task) -> tuple[Message, ...]:
        kind = msgspec.structs.replace(task, seed=0, index=None, split="train")
        # The first episode of a kind plays the examples, the others wait for it.
        played = self._played.get(kind)
        if played is None or (played.done() and (played.cancelled() or played.exception())):
            self._played[kind] = asyncio.ensure_future(self._play(kind))
        return await asyncio.shield(self._played[kind])

    async def _play(self, kind: Task) -> tuple[Message, ...]:
        turns: list[Message] = []
        for number in range(self.n):
            env = make_async(kind.env)
            try:
                turns += await _episode(env, msgspec.structs.replace(kind, seed=derive_seed(self.seed, "shots", number)))
            finally:
                await env.close()
        return tuple(turns)


async def _episode(env: AsyncEnv, task: Task) -> list[Message]:
    observation, _ = await env.reset(task=task)
    turns: list[Message] = []
    for _ in range(_LONGEST):
        action = await env.oracle()
        turns += [Message("user", observation), Message("assistant", action)]
        step = await env.step(action)
        if step.terminated or step.truncated:
            return turns
        observation = step.observation
    raise UsageError(f"the oracle of {task.env} did not finish task {task.seed} in {_LONGEST} turns: give the shots yourself")
