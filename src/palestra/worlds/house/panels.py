"""The panel of the household tasks: 20 tasks of each type on each level."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task
from palestra.worlds.house.goals import TASKS

__all__ = ["six_types"]

_COLUMNS = {"pick": "Pick", "look": "Look", "clean": "Clean", "heat": "Heat", "cool": "Cool", "two": "Pick two"}


def six_types() -> list[PanelTask]:
    """Return 20 tasks of each type, the easy level first.

    No seed occurs twice: the room depends on the seed and not on the id, so tasks of two types with one seed would be alike.
    """
    columns = [(level, task) for level in ("easy", "hard") for task in TASKS]
    return [
        PanelTask(Task(f"house:{task}-{level}", 20 * number + seed), f"House ({level})/{_COLUMNS[task]}")
        for number, (level, task) in enumerate(columns)
        for seed in range(20)
    ]
