"""A garden: give every plant the water that its label asks for."""

from functools import cache
from typing import Any

from palestra.authoring.action_line import action_line
from palestra.authoring.changes import changes, drawn_changes
from palestra.authoring.indices import draw_index
from palestra.authoring.panels import PanelTask
from palestra.authoring.picture import Tile, drawn_html
from palestra.authoring.rows import Rows, hashed
from palestra.core import Env, Step
from palestra.foundation.seeding import derive
from palestra.trajectory import Task

PLANTS = ("fern", "ivy", "moss", "palm")
MOST_CUPS = 3


@cache
def read_beds() -> Rows:
    """Return the beds of the garden: which plant asks for how many cups."""
    draws = [derive(number, "garden") for number in range(20)]
    return hashed(({plant: int(rng.integers(1, MOST_CUPS + 1)) for plant in PLANTS} for rng in draws), "own_garden")


def panel_tasks() -> list[PanelTask]:
    """Return one task per bed."""
    return [PanelTask(Task("garden:Beds-v0", index, index=index), "Garden/Beds") for index in range(len(read_beds()))]


class Garden(Env):
    """Shows the labels of one bed. A turn waters one plant with one cup."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.wanted = read_beds()[draw_index(self.task, len(read_beds()), self.rng, "the garden has beds")]
        self.given = dict.fromkeys(PLANTS, 0)
        self.actions: list[str] = []
        labels = ", ".join(f"{plant}: {cups}" for plant, cups in self.wanted.items())
        return f"Water each plant. Cups that they need: {labels}. Write: water PLANT", {}

    def step(self, action: str) -> Step:
        verb, _, plant = action_line(action).partition(" ")
        if verb != "water" or plant not in self.given:
            return Step("Write: water PLANT", 0.0, False, False, {"format_error": True})
        self.actions.append(plant)
        self.given[plant] += 1
        solved, drowned = self.given == self.wanted, self.given[plant] > self.wanted[plant]
        return Step(f"The {plant} has {self.given[plant]} cups.", float(solved), solved or drowned, False, {"success": solved})

    def oracle(self) -> str:
        return next(f"water {plant}" for plant, cups in self.wanted.items() if self.given[plant] < cups)

    def sample_random_action(self) -> str:
        return f"water {self.action_rng.choice(PLANTS)}"

    def render(self) -> str:
        """Return the bed as HTML for people."""
        tiles = [Tile(plant, "good" if cups == self.wanted[plant] else "") for plant, cups in self.given.items()]
        calls = [("water", {"plant": plant}) for plant in self.actions]
        return drawn_html([tiles]) + drawn_changes("Cups", calls, changes(dict.fromkeys(PLANTS, 0), self.given))
