"""Environments that misbehave in one way each, chosen by the task, and the books they keep."""

import os
import time
from typing import Any

from palestra import Env, Step, Task

FAULTS = ("raise", "hang", "reset", "close")


def fault_of(task: Task) -> str | None:
    """Every twentieth task has each fault: 5 % raise in step, 5 % hang, 5 % fail in reset, 5 % fail in close."""
    return dict(enumerate(FAULTS)).get(task.seed % 20)


class Faulty(Env):
    """Three turns of a little work, unless the task says otherwise."""

    blocking = True

    def __init__(self, faults: bool = True, work: float = 0.01) -> None:
        self.faults = faults
        self.work = work

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.fault = fault_of(self.task) if self.faults else None
        self.turn = 0
        if self.fault == "reset":
            raise RuntimeError("reset went wrong")
        return "go", {"pid": os.getpid()}

    def step(self, action: str) -> Step:
        self.turn += 1
        time.sleep(self.work)
        if self.fault == "raise" and self.turn == 2:
            raise KeyError("step went wrong")
        if self.fault == "hang" and self.turn == 2:
            time.sleep(3600)
        return Step("on", 1.0, self.turn == 3, False, {})

    def close(self) -> None:
        if self.fault == "close":
            raise RuntimeError("close went wrong")


class Dying(Faulty):
    """Its process ends in the middle of a step."""

    def step(self, action: str) -> Step:
        os._exit(7)
