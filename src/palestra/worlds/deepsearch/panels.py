"""The tasks of the panel ``search``: seeds 0 to 49 of each number of hops, in a world that no training task shows."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task
from palestra.worlds.deepsearch.ids import HOPS

__all__ = ["panel_tasks"]

_SEEDS = 50


def panel_tasks() -> list[PanelTask]:
    """Return the tasks. The real facts have none: there is one real world only, and training shows it."""
    return [
        PanelTask(Task(f"search:invented-{hops}hop", seed, split="test"), f"Search/{hops} hops")
        for hops in HOPS["invented"]
        for seed in range(_SEEDS)
    ]
