import palestra


def last_step(id: str) -> palestra.Step:
    """Turn for 80 of 64 steps, then do the mission."""
    with palestra.make(id, max_turns=100) as env:
        env.reset(task=palestra.Task(id, index=0))
        for action in ["turn left"] * 80 + ["go to red box 1"]:
            step = env.step(action)
            if step.terminated or step.truncated:
                break
        return step


assert last_step("babyai:panel-agentgym").reward < 0
assert last_step("babyai:panel").truncated
