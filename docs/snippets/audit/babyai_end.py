import palestra


def late_success(id: str) -> palestra.Step:
    """Waste 40 of 64 steps, then do the mission: go to a red box."""
    with palestra.make(id, max_turns=100) as env:
        env.reset(task=palestra.Task(id, index=0))
        for _ in range(40):
            env.step("turn left")
        return env.step("go to red box 1")


assert not late_success("babyai:panel-agentgym").terminated
assert late_success("babyai:panel").terminated
