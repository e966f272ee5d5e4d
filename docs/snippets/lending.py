import palestra
from palestra.wrappers import lend, named_wrapper


@palestra.tool
async def middle(low: int, high: int) -> int:
    """Return the number in the middle of a range."""
    return (low + high) // 2


wrappers = [named_wrapper("TurnLimit", turns=5), lend([middle])]
trajectories = palestra.collect("game:GuessTheNumber-v0", "random", n=3, wrappers=wrappers)
print([trajectory.reward for trajectory in trajectories])
