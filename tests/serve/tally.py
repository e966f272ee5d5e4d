"""An environment whose every answer names its task, counts its steps and repeats the action, so that a lost, repeated or
foreign call shows; and others that misbehave.
"""

import asyncio
import hashlib
import os
import time
from typing import Any, ClassVar

from palestra.core import AsyncEnv, Env, Step
from palestra.trajectory import Task

REFERENCE = "tests.serve.tally:Tally"


def reward_of(seed: int, turn: int, action: str) -> float:
    """What the step is worth: a number that belongs to this very step and no other."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{turn}:{action}".encode(), digest_size=4).digest(), "little") / 2**32


def told(seed: int, turn: int, action: str) -> str:
    """What is shown after it."""
    return f"{seed}:{turn}:{action}"


class Tally(Env):
    """An endless episode. The action ``end`` ends it."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return told(self.task.seed, 0, ""), {}

    def step(self, action: str) -> Step:
        self.turn += 1
        seed, turn = self.task.seed, self.turn
        return Step(told(seed, turn, action), reward_of(seed, turn, action), action == "end", False, {"turn": turn})


class IsolatedTally(Tally):
    """The same in a worker process."""

    blocking = True


class Moody(Tally):
    """Does what the action says: ``hang``, ``die``, ``raise``, ``nan``, ``live``, ``large``; anything else is counted."""

    blocking = True

    def step(self, action: str) -> Step:
        step = super().step(action)
        if action == "hang":
            time.sleep(3600)
        if action == "die":
            os._exit(7)
        if action == "raise":
            raise KeyError("a secret at the bottom of the stack")
        if action == "nan":
            return step._replace(reward=float("nan"))
        if action == "live":
            return step._replace(info={"object": object()})
        return step._replace(observation="x" * 200_000) if action == "large" else step


class MoodyInPlace(Moody):
    """The same on the server's event loop."""

    blocking = False


class Waiting(AsyncEnv):
    """Waits as long as the action says, on the event loop."""

    closed: ClassVar[int] = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self.turn = 0
        return "go", {}

    async def step(self, action: str) -> Step:
        await asyncio.sleep(float(action))
        self.turn += 1
        return Step(str(self.turn), 1.0, False, False, {})

    async def close(self) -> None:
        type(self).closed += 1
