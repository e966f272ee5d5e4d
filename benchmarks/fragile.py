"""A game that hangs. In a file of its own: every process that hosts one imports this, and nothing of the tests around it."""

import time

from palestra.core import Step
from palestra.suite.games.guess_the_number import GuessTheNumber


class Fragile(GuessTheNumber):
    """Hangs in its second step, one task in twenty."""

    def step(self, action: str) -> Step:
        self.taken = getattr(self, "taken", 0) + 1
        if self.taken == 2 and self.task.seed % 20 == 7:
            time.sleep(3600)
        return super().step(action)
