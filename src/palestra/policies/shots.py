"""Few-shot examples as chat turns. Small models answer nothing without them.

``OracleShots(3)`` plays three other tasks of the episode's environment with its oracle, once, and shows them as turns before
the episode. Their tasks are of the training split, whatever is being played, and their seeds come from a path of their own: so
they are never the task at hand, and nothing that is held out is shown. A data set may have one split only. Its examples come
from other rows than the row that the task names.
"""

import asyncio
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec

from palestra.core import AsyncEnv
from palestra.errors import UsageError
from palestra.foundation.seeding import derive_seed
from palestra.registry import make_async
from palestra.trajectory import Message, Task, observed

__all__ = ["NoShots", "OracleShots", "Shots"]

_TRIES = 8
"""Tasks to draw per example; a file of few rows has fewer examples."""
_LONGEST = 64
"""Turns of one example; an oracle that needs more is no example."""


class Shots(Protocol):
    """Gives the turns to show before an episode: user and assistant in turn, ending with the assistant."""

    async def messages(self, task: Task) -> tuple[Message, ...]:
        """The turns for an episode of ``task``."""
        ...


class _Example(NamedTuple):
    turns: tuple[Message, ...]
    row: tuple[str, int] | None
    """Split and index of the row, if the environment reads a data set."""

    def shows(self, task: Task) -> bool:
        """Return whether it is the row that ``task`` names. A task of the split "train" may mean the only split there is."""
        return self.row is not None and self.row[1] == task.index and task.split in ("train", self.row[0])


class NoShots:
    """Shows nothing."""

    async def messages(self, task: Task) -> tuple[Message, ...]:
        return ()


class OracleShots:
    """Shows ``n`` episodes that the environment's own oracle played on other tasks."""

    def __init__(self, n: int = 3, *, seed: int = 0) -> None:
        if n < 1:
            raise UsageError(f"n must be at least 1, got {n}; for none leave the shots out")
        self.n = n
        self.seed = seed
        self._played: dict[Task, asyncio.Task[list[_Example]]] = {}

    async def messages(self, task: Task) -> tuple[Message, ...]:
        kind = msgspec.structs.replace(task, seed=0, index=None, split="train")
        # The first episode of a kind plays the examples, the others wait for it.
        played = self._played.get(kind)
        if played is None or (played.done() and (played.cancelled() or played.exception())):
            self._played[kind] = asyncio.ensure_future(self._play(kind))
        others = [example.turns for example in await asyncio.shield(self._played[kind]) if not example.shows(task)]
        return tuple(chain.from_iterable(others[: self.n]))

    async def _play(self, kind: Task) -> list[_Example]:
        """Play ``n`` examples, and one more of a data set, whose rows differ: one of them may be the row at hand."""
        examples: dict[object, _Example] = {}
        for number in range(_TRIES * (self.n + 1)):
            env = make_async(kind.env)
            try:
                played = await _episode(env, msgspec.structs.replace(kind, seed=derive_seed(self.seed, "shots", number)))
            finally:
                await env.close()
            examples.setdefault(played.row or number, played)
            if len(examples) == self.n + (played.row is not None):
                break
        return list(examples.values())


def _row(info: dict[str, Any]) -> tuple[str, int] | None:
    match info.get("data"):
        case {"split": str(split), "index": int(index)}:
            return split, index
    return None


async def _episode(env: AsyncEnv, task: Task) -> _Example:
    observation, info = await env.reset(task=task)
    row = _row(info)
    turns: list[Message] = []
    for _ in range(_LONGEST):
        action = await env.oracle()
        turns += [observed(observation, info), Message("assistant", action)]
        step = await env.step(action)
        if step.terminated or step.truncated:
            return _Example(tuple(turns), row)
        observation, info = step.observation, step.info
    raise UsageError(f"the oracle of {task.env} did not finish task {task.seed} in {_LONGEST} turns: give the shots yourself")
