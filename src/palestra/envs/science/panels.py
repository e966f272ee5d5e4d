"""The panels of ScienceWorld: which games they have, by rule."""

from palestra.envs.panels import PanelTask
from palestra.envs.science.tasks import AGENTGYM, TASKS, games_of
from palestra.trajectory import Task

__all__ = ["PER_TASK", "agentgym", "every_task"]

PER_TASK = 10
"""Games per task in the panel of all tasks."""

AGENTGYM_GAMES = 200


def every_task() -> list[PanelTask]:
    """Ten games of each of the 30 tasks, evenly spaced over the variations that are not for training.

    A task with fewer than ten such variations gives its last ten variations.
    """
    return [PanelTask(_named(name, variation), f"ScienceWorld/{name}") for name in TASKS for variation in _chosen(name)]


def _chosen(name: str) -> list[int]:
    task = TASKS[name]
    start = min(len(task.split("train")), task.variations - PER_TASK)
    return [start + place * (task.variations - start) // PER_TASK for place in range(PER_TASK)]


def _named(name: str, variation: int) -> Task:
    """Return the task of a variation, under the id of the split to which it belongs."""
    for split in ("test", "dev", "train"):
        if variation in (variations := TASKS[name].split(split)):
            return Task(f"science:{name}-{split}", seed=0, index=variation - variations.start)
    raise AssertionError(f"{name} has no variation {variation}")


def agentgym() -> list[PanelTask]:
    """200 of AgentGym's 4,639 games, evenly spaced."""
    total = len(games_of(AGENTGYM, "all"))
    indices = [place * total // AGENTGYM_GAMES for place in range(AGENTGYM_GAMES)]
    return [PanelTask(Task("science:agentgym", seed=0, index=index), "SciWorld/All") for index in indices]
