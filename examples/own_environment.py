# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra"]
# ///
"""Write an environment, check it, and evaluate two policies on it: ``uv run --find-links dist examples/own_environment.py``."""

import re
from typing import Any

import palestra


class Change(palestra.Env):
    """Pay a sum with coins of 1, 3 and 4, one coin per turn. Taking the largest coin first is not always best."""

    COINS = (1, 3, 4)
    max_turns = 8

    def reset(self, *, seed: int | None = None, task: palestra.Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)  # self.rng is now this task's own generator
        self.left = int(self.rng.integers(5, 16))
        self.coins = len(self._best(self.left))
        return f"Pay {self.left} with {self.coins} coins of 1, 3 or 4. Write one coin per turn, such as \\boxed{{3}}.", {}

    def step(self, action: str) -> palestra.Step:
        coin = palestra.grading.last_boxed(action) or ""
        if coin not in map(str, self.COINS) or int(coin) > self.left:
            return palestra.Step("That coin cannot be paid.", 0.0, True, False, {"success": False})
        self.left, self.coins = self.left - int(coin), self.coins - 1
        solved = self.left == 0
        over = solved or self.coins == 0
        return palestra.Step(f"{self.left} left, {self.coins} coins.", float(solved), over, False, {"success": solved})

    def oracle(self) -> str:
        return f"\\boxed{{{self._best(self.left)[0]}}}"

    def sample_random_action(self) -> str:
        return f"\\boxed{{{self.action_rng.choice(self.COINS)}}}"

    def _best(self, total: int) -> list[int]:
        ways: list[list[int]] = [[]]
        for sum_ in range(1, total + 1):
            ways.append(min(([coin, *ways[sum_ - coin]] for coin in self.COINS if coin <= sum_), key=len))
        return ways[total]


def largest_first(text: str) -> str:
    """Take the largest coin that fits."""
    left = int(re.findall(r"(?<=Pay )\d+|\d+(?= left)", text)[-1])
    return f"\\boxed{{{max(coin for coin in Change.COINS if coin <= left)}}}"


def main() -> None:
    """Check the environment, and print one line per policy."""
    palestra.register("demo:Change-v0", Change)
    report = palestra.check_env("demo:Change-v0", n=50)
    print("checked:", report.ok)
    for policy in ("oracle", "random", largest_first):
        score = palestra.evaluate("demo:Change-v0", policy, n=200).suite.score
        print(policy if isinstance(policy, str) else policy.__name__, f"{score.mean:.2f} ({score.low:.2f} to {score.high:.2f})")


if __name__ == "__main__":
    main()
