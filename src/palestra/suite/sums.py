"""Sums of small numbers: the smallest task on which a real language model measurably learns.

The split is fixed: no sum of ``test`` has the same numbers, in any order, as a sum of ``train``. So a rise on ``test`` is not
memorization.
"""

import itertools
import re
from collections import Counter
from functools import lru_cache
from typing import Any

from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.suite.games.game import require
from palestra.trajectory import Task

__all__ = ["Sums"]

_HELD_OUT = 0.25
_ANSWER = re.compile(r"Answer: *(\d{1,6})(?!\d)")
Numbers = tuple[int, ...]


class Sums(Env):
    """Add ``terms`` numbers of one digit. One answer, worth 1 if it is right."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(self, terms: int = 2) -> None:
        require(2 <= terms <= 4, f"terms is 2, 3 or 4, got {terms}")
        self._terms = terms

    @property
    def floor(self) -> float:
        # The best constant answer is the commonest sum.
        return max(max(Counter(map(sum, side)).values()) / len(side) for side in _sides(self._terms).values())

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        sides = _sides(self._terms)
        if self.task.split not in sides:
            raise UsageError(f'the sums are split into {" and ".join(sides)}; there is no "{self.task.split}"')
        side = sides[self.task.split]
        self.numbers = side[int(self.rng.integers(len(side)))]
        return f"{' + '.join(map(str, self.numbers))} = ?", {}

    def step(self, action: str) -> Step:
        found = _ANSWER.findall(action)
        if not found:
            return Step("There is no answer.", 0.0, True, False, {"success": False, "format_error": True})
        right = int(found[-1]) == sum(self.numbers)
        return Step("", float(right), True, False, {"success": right})

    def oracle(self) -> str:
        return f"Answer: {sum(self.numbers)}"

    def sample_random_action(self) -> str:
        return f"Answer: {int(self.action_rng.integers(9 * self._terms + 1))}"


@lru_cache
def _sides(terms: int) -> dict[str, list[Numbers]]:
    """Every sum of ``terms`` digits, in every order, by the side of the split that it is on."""
    sets = list(itertools.combinations_with_replacement(range(10), terms))
    order = derive(0, "sums", terms).permutation(len(sets))
    held_out = {sets[place] for place in order[: round(_HELD_OUT * len(sets))].tolist()}
    sides: dict[str, list[Numbers]] = {"train": [], "test": []}
    for numbers in itertools.product(range(10), repeat=terms):
        sides["test" if tuple(sorted(numbers)) in held_out else "train"].append(numbers)
    return sides
