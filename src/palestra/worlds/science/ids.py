"""The ids of ScienceWorld: one per task, with ScienceWorld's splits as levels, and AgentGym's list of games."""

from palestra.registry import Need, register
from palestra.worlds.science.tasks import AGENTGYM, SPLITS, TASKS

_ENTRY = "palestra.worlds.science.world:ScienceWorld"
_ROWS = "palestra.worlds.science.tasks:read_games"
_NEEDS = (
    Need(label="ScienceWorld", module="scienceworld", extra="worlds"),
    Need(label="Java", program="java", fix="apt install default-jre-headless"),
)
_TAGS = {"world", "science", "multi-turn"}


for name, task in TASKS.items():
    register(
        f"science:{name}",
        _ENTRY,
        kwargs={"tasks": name},
        levels={split: {"split": split} for split in SPLITS},
        max_turns=task.max_turns,
        rows=_ROWS,
        needs=_NEEDS,
        tags=_TAGS,
        description=task.about,
    )
register(
    f"science:{AGENTGYM}",
    _ENTRY,
    kwargs={"tasks": AGENTGYM, "split": "all", "fatal": -100},
    max_turns=100,
    rows=_ROWS,
    needs=_NEEDS,
    tags=_TAGS,
    description="ScienceWorld's games as AgentGym plays them: 23 tasks, 4,639 games, 100 turns.",
)
