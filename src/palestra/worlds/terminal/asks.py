"""What a question about groups of numbers asks for: the statistic, the least number that counts, and the order.

Families draw these for every task and state them in the goal only. So no fixed script answers many tasks of a family.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from palestra.worlds.terminal.scene import draw

__all__ = ["TOTAL", "Ask", "draw_ask"]


class Statistic(NamedTuple):
    """A number that sums up other numbers."""

    about: str
    value: Callable[[Sequence[int]], int]
    awk: str
    """The statement of awk that adds the value ``v`` to the group ``k`` of the table ``t``."""


TOTAL = Statistic("the total amount", sum, "t[k]+=v")
_STATISTICS = (
    TOTAL,
    Statistic("the number", len, "t[k]++"),
    Statistic("the smallest amount", min, "if(!(k in t)||v<t[k])t[k]=v"),
)
"""Each depends on the least number that counts. The largest number would not, so one script would be right for every bound."""


class Ask(NamedTuple):
    """One number per group, from the numbers that are large enough, sorted by this number."""

    statistic: Statistic
    least: int
    descending: bool

    @property
    def first(self) -> str:
        """Which value comes first, as a word."""
        return "largest" if self.descending else "smallest"

    @property
    def sort_flag(self) -> str:
        """The flags of ``sort`` for this order of numbers."""
        return "nr" if self.descending else "n"

    def answer(self, pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return groups and their numbers in the order that was asked for; of equal numbers, the first name first."""
        groups: dict[str, list[int]] = defaultdict(list)
        for group, number in pairs:
            if number >= self.least:
                groups[group].append(number)
        values = [(group, self.statistic.value(numbers)) for group, numbers in groups.items()]
        return sorted(values, key=lambda pair: (-pair[1] if self.descending else pair[1], pair[0]))


def draw_ask(rng: np.random.Generator, least: range) -> Ask:
    """Draw a question; ``least`` has the numbers from which the bound is drawn."""
    return Ask(draw(rng, _STATISTICS), draw(rng, least), bool(rng.integers(2)))
