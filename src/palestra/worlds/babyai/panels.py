"""The panels ``babyai`` and ``babyai-agentgym``: AgentGym-RL's 90 test tasks, in the columns of its paper."""

from palestra.authoring.panels import PanelTask
from palestra.trajectory import Task
from palestra.worlds.babyai.sets import NumberedTasks

__all__ = ["agentgym_tasks", "panel_tasks"]

_COLUMNS = (("GoTo", "GoTo"), ("Pickup", "Pickup"), ("Action", "ActionObjDoor"), ("Find", "FindObj"), ("One", "OneRoom"))


def panel_tasks() -> list[PanelTask]:
    """List the tasks under the mended rules."""
    return _tasks("babyai:panel")


def agentgym_tasks() -> list[PanelTask]:
    """List the tasks under AgentGym's rules."""
    return _tasks("babyai:panel-agentgym")


def _tasks(env: str) -> list[PanelTask]:
    rows = NumberedTasks("test")
    return [PanelTask(Task(env, 0, index=k), f"BabyAI/{_column(rows.level_and_seed(k)[0])}") for k in range(len(rows))]


def _column(level: str) -> str:
    return next((column for start, column in _COLUMNS if level.startswith(start)), level)
