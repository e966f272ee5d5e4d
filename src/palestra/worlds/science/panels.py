"""The panels of ScienceWorld: which games they have, by rule."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task
from palestra.worlds.science.tasks import AGENTGYM, TASKS, Game, games_of

__all__ = ["PER_TASK", "agentgym", "every_task", "panel_games"]

PER_TASK = 10
"""Games per task in the panel of all tasks."""

AGENTGYM_GAMES = 200

_COLUMNS = {
    "measure-": "Measure",
    "test-conductivity": "Test-Cond.",
    "find-": "Find",
    "chemistry-": "Chem-Mix",
    "lifespan-": "Lifespan",
}
"""The start of a task's name → its column."""


def every_task() -> list[PanelTask]:
    """Ten games of each of the 30 tasks, evenly spaced over the variations that are not for training.

    A task with fewer than ten such variations gives its last ten variations.
    """
    return [PanelTask(_named(game), f"ScienceWorld/{game.task}") for game in _every_game()]


def panel_games() -> list[Game]:
    """Return the games of both panels, each once."""
    return list(dict.fromkeys([*_every_game(), *(games_of(AGENTGYM, "all")[k] for k in _evenly_spaced())]))


def _every_game() -> list[Game]:
    return [Game(name, variation) for name in TASKS for variation in _chosen(name)]


def _chosen(name: str) -> list[int]:
    task = TASKS[name]
    start = min(len(task.split("train")), task.variations - PER_TASK)
    return [start + number * (task.variations - start) // PER_TASK for number in range(PER_TASK)]


def _named(game: Game) -> Task:
    """Return the task of a game, under the id of the split to which it belongs."""
    name, variation = game
    for split in ("test", "dev", "train"):
        if variation in (variations := TASKS[name].split(split)):
            return Task(f"science:{name}-{split}", seed=0, index=variation - variations.start)
    raise AssertionError(f"{name} has no variation {variation}")


def agentgym() -> list[PanelTask]:
    """200 of AgentGym's 4,639 games, evenly spaced over its list, in the columns of AgentGym-RL's paper.

    The paper has as many games, but they are other ones: it has 53, 83, 44, 5 and 15 games in its columns, and no others.
    """
    games = games_of(AGENTGYM, "all")
    return [
        PanelTask(Task("science:agentgym", seed=0, index=k), f"SciWorld/{_column(games[k].task)}") for k in _evenly_spaced()
    ]


def _evenly_spaced() -> list[int]:
    total = len(games_of(AGENTGYM, "all"))
    return [number * total // AGENTGYM_GAMES for number in range(AGENTGYM_GAMES)]


def _column(name: str) -> str:
    return next((column for start, column in _COLUMNS.items() if name.startswith(start)), "Other")
