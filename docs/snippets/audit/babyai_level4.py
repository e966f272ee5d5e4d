import gymnasium

import palestra


def room_size(id: str) -> int:
    """The size of a room in the panel's first task of level 4."""
    with palestra.make(id) as env:
        env.reset(task=palestra.Task(id, index=17))
        return int(env.unwrapped.world.grid_env.room_size)


assert room_size("babyai:panel-agentgym") == 4  # although the level is called GoToObjS6
assert room_size("babyai:panel") == 6
assert "BabyAI-GoToObjS6-v0" not in gymnasium.registry  # the id that AgentGym asks for
