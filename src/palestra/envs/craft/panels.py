"""The tasks of the crafting panels: 100 goals, spread evenly over the names of each depth.

The numbers per depth, 31, 41, 25 and 3, are those of AgentGym-RL's test set. The goals are chosen by our rule and named.
"""

from palestra.envs.craft.minecraft import agentgym_rows, goals_of
from palestra.envs.panels import PanelTask
from palestra.trajectory import Task

__all__ = ["agentgym_tasks", "panel_tasks"]

_NUMBERS = {1: 31, 2: 41, 3: 25, 4: 3}
"""Depth → number of goals."""


def panel_tasks() -> list[PanelTask]:
    """Return the goals as tasks of ``craft:minecraft-depth1`` to ``depth4``."""
    return [
        PanelTask(Task(f"craft:minecraft-depth{depth}", 0, params={"goal": goal}), f"TextCraft/Depth {depth}")
        for depth, goal in _goals()
    ]


def agentgym_tasks() -> list[PanelTask]:
    """Return the same goals as tasks of ``craft:minecraft-agentgym``, by their numbers there."""
    place = {row["goal"]: index for index, row in enumerate(agentgym_rows().rows)}
    return [
        PanelTask(Task("craft:minecraft-agentgym", 0, index=place[goal]), f"TextCraft/Depth {depth}")
        for depth, goal in _goals()
    ]


def _goals() -> list[tuple[int, str]]:
    found = []
    for depth, number in _NUMBERS.items():
        goals = goals_of(depth)
        found += [(depth, goals[place * len(goals) // number]) for place in range(number)]
    return found
