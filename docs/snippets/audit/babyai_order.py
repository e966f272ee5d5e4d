import palestra


def first_observation(id: str) -> str:
    with palestra.make(id) as env:
        return str(env.reset(task=palestra.Task(id, index=21))[0])


assert "the blue box, and go to the blue box" in first_observation("babyai:panel-agentgym")
assert "the blue box, then go to the blue box" in first_observation("babyai:panel")
