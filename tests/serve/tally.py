"""An environment whose every answer names its task, counts its steps and repeats the action: a lost, repeated or foreign call shows."""

import hashlib
from typing import Any

from palestra.core import Env, Step
from palestra.trajectory import Task

REFERENCE = "tests.serve.tally:Tally"


def reward_of(seed: int, turn: int, action: str) -> float:
    """What the step is worth: a number that belongs to this very step and no other."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{turn}:{action}".encode(), digest_size=4).digest(), "little") / 2**32


def told(seed: int, turn: int, action: str) -> str:
    """What is shown after it."""
    return f"{seed}:{turn}:{action}"


class Tally(Env):
    """Goes on for ever. The action ``end`` ends it."""

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
