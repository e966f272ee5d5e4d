"""The 30 tasks of ScienceWorld, their variations and splits, and the lists of games that ids stand for.

A game is one variation of one task. The table is a literal, so that listing and counting games needs no Java process. A
benchmark compares it with the simulator.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, overload

from palestra.errors import UsageError

__all__ = ["AGENTGYM", "FLOORS", "SPLITS", "TASKS", "Game", "Games", "ScienceTask", "games_of", "read_games"]

SPLITS = ("train", "dev", "test")
AGENTGYM = "agentgym"
"""The name of AgentGym's list of games."""


class Game(NamedTuple):
    """One variation of one task."""

    task: str
    variation: int


class ScienceTask(NamedTuple):
    """A task of ScienceWorld."""

    number: str
    """ScienceWorld's own id, such as ``1-1``. AgentGym names the tasks that it leaves out by it."""
    variations: int
    max_turns: int
    """The turn limit of the id. It is at least 1.2 times the longest gold path that we know of."""
    about: str

    def split(self, name: str) -> range:
        """Return the variations of a split. ScienceWorld takes the first half for training and the next quarter for ``dev``."""
        quarter = self.variations // 4
        bounds = {
            "train": (0, 2 * quarter),
            "dev": (2 * quarter, 3 * quarter),
            "test": (3 * quarter, self.variations),
            "all": (0, self.variations),
        }
        if name not in bounds:
            raise UsageError(f'ScienceWorld has no split "{name}"; there are {", ".join(SPLITS)}')
        return range(*bounds[name])


TASKS = {
    "boil": ScienceTask("1-1", 30, 250, "Boil a substance."),
    "melt": ScienceTask("1-2", 30, 250, "Melt a substance."),
    "freeze": ScienceTask("1-3", 30, 250, "Freeze a substance."),
    "change-the-state-of-matter-of": ScienceTask("1-4", 30, 250, "Change the state of matter of a substance."),
    "use-thermometer": ScienceTask("2-1", 540, 150, "Measure a temperature and sort by it."),
    "measure-melting-point-known-substance": ScienceTask("2-2", 436, 150, "Measure the melting point of a known substance."),
    "measure-melting-point-unknown-substance": ScienceTask(
        "2-3", 300, 150, "Measure the melting point of an unknown substance."
    ),
    "power-component": ScienceTask("3-1", 20, 150, "Build a circuit that powers a component."),
    "power-component-renewable-vs-nonrenewable-energy": ScienceTask(
        "3-2", 20, 150, "Power a component with a given kind of energy."
    ),
    "test-conductivity": ScienceTask("3-3", 900, 150, "Find out whether an object conducts electricity."),
    "test-conductivity-of-unknown-substances": ScienceTask(
        "3-4", 600, 150, "Find out whether a substance conducts electricity."
    ),
    "find-living-thing": ScienceTask("4-1", 300, 100, "Find a living thing and put it into a box."),
    "find-non-living-thing": ScienceTask("4-2", 300, 100, "Find a thing that does not live and put it into a box."),
    "find-plant": ScienceTask("4-3", 300, 100, "Find a plant and put it into a box."),
    "find-animal": ScienceTask("4-4", 300, 100, "Find an animal and put it into a box."),
    "grow-plant": ScienceTask("5-1", 126, 200, "Grow a plant from a seed."),
    "grow-fruit": ScienceTask("5-2", 126, 200, "Grow a fruit, with pollination."),
    "chemistry-mix": ScienceTask("6-1", 32, 100, "Mix substances so that they react."),
    "chemistry-mix-paint-secondary-color": ScienceTask("6-2", 36, 100, "Mix two paints."),
    "chemistry-mix-paint-tertiary-color": ScienceTask("6-3", 36, 100, "Mix paints in two steps."),
    "lifespan-longest-lived": ScienceTask("7-1", 125, 100, "Find the animal that lives longest."),
    "lifespan-shortest-lived": ScienceTask("7-2", 125, 100, "Find the animal that lives shortest."),
    "lifespan-longest-lived-then-shortest-lived": ScienceTask(
        "7-3", 125, 100, "Find the animals that live longest and shortest."
    ),
    "identify-life-stages-1": ScienceTask("8-1", 14, 100, "Find the life stages of a plant, in order."),
    "identify-life-stages-2": ScienceTask("8-2", 10, 100, "Find the life stages of an animal, in order."),
    "inclined-plane-determine-angle": ScienceTask("9-1", 168, 250, "Find the steeper of two inclined planes."),
    "inclined-plane-friction-named-surfaces": ScienceTask("9-2", 1386, 250, "Compare the friction of two named surfaces."),
    "inclined-plane-friction-unnamed-surfaces": ScienceTask("9-3", 162, 250, "Compare the friction of two unnamed surfaces."),
    "mendelian-genetics-known-plant": ScienceTask("10-1", 120, 400, "Find out whether a trait of peas is dominant."),
    "mendelian-genetics-unknown-plant": ScienceTask(
        "10-2", 480, 400, "Find out whether a trait of an unknown plant is dominant."
    ),
}
"""All tasks by name, in ScienceWorld's order."""

FLOORS = {
    "use-thermometer": 0.02,
    "measure-melting-point-known-substance": 0.01,
    "measure-melting-point-unknown-substance": 0.01,
    "power-component": 0.09,
    "power-component-renewable-vs-nonrenewable-energy": 0.02,
    "test-conductivity": 0.02,
    "test-conductivity-of-unknown-substances": 0.37,
    "find-living-thing": 0.08,
    "find-non-living-thing": 0.5,
    "find-plant": 0.09,
    "find-animal": 0.03,
    "grow-plant": 0.01,
    "grow-fruit": 0.01,
    "chemistry-mix-paint-secondary-color": 0.14,
    "chemistry-mix-paint-tertiary-color": 0.03,
    "lifespan-longest-lived-then-shortest-lived": 0.11,
    "inclined-plane-determine-angle": 0.07,
    "mendelian-genetics-unknown-plant": 0.1,
}
"""The mean score of the best constant action that was found, by task, where it is more than 0: the larger of two measurements,
over three games and over ten others.

Most tasks give points for being in the right room, and some games begin there.
"""

_NOT_IN_AGENTGYM = {"5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2"}


class Games(Sequence[Game]):
    """A list of games, as the rows of an environment: row ``k`` is the task with ``index=k``."""

    def __init__(self, games: Sequence[Game]) -> None:
        self._games = tuple(games)
        lines = "".join(f"{game.task} {game.variation}\n" for game in self._games)
        self.sha256 = hashlib.sha256(lines.encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._games)

    @overload
    def __getitem__(self, index: int) -> Game: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Game]: ...

    def __getitem__(self, index: int | slice) -> Game | Sequence[Game]:
        return self._games[index]


@cache
def games_of(tasks: str, split: str) -> Games:
    """Return the games of a task, or of the list ``agentgym``, in a split or in ``all``.

    AgentGym numbers its games over all tasks but seven, in ScienceWorld's order, whatever their split.
    """
    if tasks == AGENTGYM:
        chosen = [name for name, task in TASKS.items() if task.number not in _NOT_IN_AGENTGYM]
    elif tasks in TASKS:
        chosen = [tasks]
    else:
        raise UsageError(f'ScienceWorld has no task "{tasks}"; there are {", ".join(TASKS)} and {AGENTGYM}')
    return Games([Game(name, variation) for name in chosen for variation in TASKS[name].split(split)])


def read_games(tasks: str, split: str = "train", **_: Any) -> Games:
    """Return the rows of an environment with these keyword arguments."""
    return games_of(tasks, split)
