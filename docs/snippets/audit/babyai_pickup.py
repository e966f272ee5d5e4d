import palestra


def is_refused(id: str, action: str) -> bool:
    """Whether the environment does not know the action, in a task with a grey box in view."""
    with palestra.make(id) as env:
        env.reset(task=palestra.Task(id, index=7))
        return str(env.step(action).observation).startswith("That ")


assert is_refused("babyai:panel-agentgym", "pick up grey box 1")  # in the words of the instruction
assert not is_refused("babyai:panel", "pick up grey box 1")
