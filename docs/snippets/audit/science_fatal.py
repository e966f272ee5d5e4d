import palestra


def score(id: str, game: int) -> float:
    """Focus on a wrong thing, which ends a game of ScienceWorld."""
    with palestra.make(id) as env:
        env.reset(task=palestra.Task(id, index=game))
        return env.step("Action: focus on agent").reward


assert score("science:agentgym", 30) == -1.0  # game 30 is the first variation of melt
assert score("science:melt-train", 0) == 0.0
