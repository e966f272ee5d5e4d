"""An environment of thirty lines, and its check."""

import sys
from typing import Any

from rich.console import Console

import palestra
from palestra import Env, Step, Task
from palestra.checking import check_env, render


class Parity(Env):
    """Say whether the shown number is even or odd."""

    reward_range = (0.0, 1.0)
    floor = 0.5  # two outcomes: who never looks is right half of the time

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)  # self.rng is now this task's own generator
        self.number = int(self.rng.integers(1000))
        return f"Is {self.number} even or odd? Answer with \\boxed{{even}} or \\boxed{{odd}}.", {}

    def step(self, action: str) -> Step:
        answer = palestra.grading.last_boxed(action)
        correct = answer == ("odd" if self.number % 2 else "even")
        return Step("", float(correct), True, False, {"success": correct})

    def oracle(self) -> str:
        return "\\boxed{odd}" if self.number % 2 else "\\boxed{even}"


if __name__ == "__main__":
    report = check_env(Parity, tasks=100)
    Console().print(render(report))
    sys.exit(not report.ok)
