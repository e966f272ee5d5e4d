import palestra


def score(id: str) -> float:
    """Waste 40 of 64 steps, do the mission, then write nonsense."""
    with palestra.make(id, max_turns=100) as env:
        env.reset(task=palestra.Task(id, index=0))
        total = 0.0
        for action in ["turn left"] * 40 + ["go to red box 1"] + ["nonsense"] * 59:
            step = env.step(action)
            total += step.reward
            if step.terminated or step.truncated:
                break
        return total


assert score("babyai:panel-agentgym") > 10
assert 0 < score("babyai:panel") < 0.5
