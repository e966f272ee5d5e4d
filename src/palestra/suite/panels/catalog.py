"""The panels: name, description, and the functions that list the tasks. One entry per panel."""

from typing import NamedTuple

__all__ = ["PANELS", "Rule"]


class Rule(NamedTuple):
    """How a panel is made."""

    description: str
    functions: tuple[str, ...]
    """``module:function`` of each part, in order; each returns a list of ``PanelTask``."""


PANELS: dict[str, Rule] = {
    "agentgym-rl": Rule(
        "The worlds of AgentGym-RL in the columns of its paper: TextCraft, BabyAI, ScienceWorld and deep search.",
        (
            "palestra.worlds.craft.panels:panel_tasks",
            "palestra.worlds.babyai.panels:panel_tasks",
            "palestra.worlds.science.panels:agentgym",
            "palestra.suite.panels.agentgym_rl:search_tasks",
        ),
    ),
    "babyai": Rule("AgentGym-RL's 90 BabyAI tasks, with mended rules.", ("palestra.worlds.babyai.panels:panel_tasks",)),
    "babyai-agentgym": Rule(
        "AgentGym-RL's 90 BabyAI tasks, with its rules.", ("palestra.worlds.babyai.panels:agentgym_tasks",)
    ),
    "desk": Rule("Service desks of a shop and a library, 50 tasks per level.", ("palestra.worlds.desk.panels:desk_tasks",)),
    "craft": Rule("100 goals of Minecraft by depth, as AgentGym-RL tests.", ("palestra.worlds.craft.panels:panel_tasks",)),
    "house": Rule("The six household task types, 20 tasks of each on each level.", ("palestra.worlds.house.panels:six_types",)),
    "science": Rule("Ten held-out games of each of ScienceWorld's 30 tasks.", ("palestra.worlds.science.panels:every_task",)),
    "science-agentgym": Rule("200 of AgentGym's 4,639 games of ScienceWorld.", ("palestra.worlds.science.panels:agentgym",)),
    "search": Rule(
        "Questions of 2, 3, 4 and 6 hops about an invented world, 50 of each.",
        ("palestra.worlds.deepsearch.panels:panel_tasks",),
    ),
}
