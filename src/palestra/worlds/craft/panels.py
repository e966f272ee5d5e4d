"""The tasks of the crafting panels: 100 goals, spread evenly over the names of each depth.

The numbers per depth, 31, 41, 25 and 3, are those of AgentGym-RL's test set. The goals are chosen by our rule and named.
"""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task
from palestra.worlds.craft.minecraft import PANEL_GOALS, agentgym_rows, panel_goals

__all__ = ["agentgym_tasks", "panel_tasks"]


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
    return [(depth, goal) for depth in PANEL_GOALS for goal in panel_goals(depth)]
