"""One-turn worlds for ``probe.py``: what can be learnt, and four ways in which nothing can."""

import random
from typing import Any

import palestra

COLORS = ("red", "amber", "green", "blue")
MOVES = ("stop", "wait", "go", "turn")


class Lights(palestra.Env):
    """The color of a light says which of four moves is right."""

    def reset(self, *, seed: int | None = None, task: palestra.Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.color = int(self.rng.integers(len(COLORS)))
        self.hidden = int(self.rng.integers(len(MOVES)))
        return f"The light is {COLORS[self.color]}", {}

    def step(self, action: str) -> palestra.Step:
        right = self.pays(action.strip())
        return palestra.Step("", float(right), True, False, {"success": right})

    def pays(self, move: str) -> bool:
        return move == f"\\boxed{{{MOVES[self.color]}}}"

    def sample_random_action(self) -> str:
        return f"\\boxed{{{MOVES[int(self.rng.integers(len(MOVES)))]}}}"

    def oracle(self) -> str:
        return f"\\boxed{{{MOVES[self.color]}}}"


class HiddenMove(Lights):
    """The right move is drawn for each task and shown nowhere."""

    def pays(self, move: str) -> bool:
        return move == f"\\boxed{{{MOVES[self.hidden]}}}"

    def oracle(self) -> str:
        return f"\\boxed{{{MOVES[self.hidden]}}}"


class UnknownMove(Lights):
    """The right move is a word that the model's vocabulary does not have."""

    def pays(self, move: str) -> bool:
        return move == "\\boxed{overtake}"


class PaysAlways(Lights):
    """Every move is right."""

    def pays(self, move: str) -> bool:
        return True


class PaysByChance(Lights):
    """A coin is tossed after the move."""

    def pays(self, move: str) -> bool:
        return random.random() < 0.5
