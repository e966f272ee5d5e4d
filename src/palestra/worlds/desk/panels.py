"""The tasks of the panel ``desk``."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task

__all__ = ["desk_tasks"]


def desk_tasks() -> list[PanelTask]:
    """Fifty tasks of each desk and level: the seeds from a million on, which training with small seeds does not see."""
    return [
        PanelTask(Task(f"tools:desk-{domain}-{level}", 1_000_000 + place), f"Service desk/{domain.capitalize()}, {level}")
        for domain in ("shop", "library")
        for level in ("easy", "hard")
        for place in range(50)
    ]
