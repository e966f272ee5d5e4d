import palestra


def is_over(id: str) -> bool:
    """Whether a wrong answer ends the episode."""
    with palestra.make(id, documents=600) as env:
        env.reset(seed=0)
        return env.step("<answer>I do not know</answer>").terminated


assert not is_over("search:invented-2hop-agentgym")
assert is_over("search:invented-2hop")
