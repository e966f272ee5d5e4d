"""The ids ``babyai:``: three for each level, and the sets of tasks that AgentGym-RL trains and tests on."""

from palestra.registry import Need, register
from palestra.worlds.babyai.levels import LEVELS, max_turns_of

_NEEDS = (Need(label="minigrid", module="minigrid", extra="worlds"),)
_ENTRY = "palestra.worlds.babyai.env:BabyAI"


for level, kind in LEVELS.items():
    tags = {"world", "navigation", kind.replace(" ", "-")}
    about = f"BabyAI level {level} of minigrid"
    turns = max_turns_of(level)
    macro = {"level": level, "max_turns": turns}
    register(f"babyai:{level}", _ENTRY, kwargs=macro, tags=tags, needs=_NEEDS, description=f"{about}, as text.")
    register(
        f"babyai:{level}-primitive",
        _ENTRY,
        kwargs={"level": level, "actions": "primitive"},
        tags={*tags, "primitive"},
        needs=_NEEDS,
        description=f"{about}, as text, with primitive actions.",
    )
    register(
        f"babyai:{level}-vision",
        _ENTRY,
        kwargs={**macro, "view": "picture"},
        tags={*tags, "vision"},
        needs=_NEEDS,
        description=f"{about}, as pictures.",
    )
for name, split, what in (("panel", "test", "The panel of 90 tasks"), ("train", "train", "The 814 training tasks")):
    for suffix, entry, rules in (
        ("", "sets:BabyAISet", "mended rules"),
        ("-agentgym", "agentgym:AgentGymBabyAI", "its rules"),
    ):
        register(
            f"babyai:{name}{suffix}",
            f"palestra.worlds.babyai.{entry}",
            kwargs={"split": split},
            tags={"world", "navigation", "agentgym"},
            needs=_NEEDS,
            rows="palestra.worlds.babyai.sets:read_tasks",
            description=f"{what} of AgentGym-RL's BabyAI, with {rules}.",
        )
