from scienceworld import ScienceWorldEnv

import palestra

bare = ScienceWorldEnv()


def bare_look() -> str:
    """Load a game as AgentGym does, and look around."""
    bare.load("find-animal", 14)
    return str(bare.step("look around")[0])


def look() -> str:
    """The first observation of the same game."""
    return str(env.reset(task=palestra.Task("science:find-animal-train", index=14))[0])


assert len({bare_look() for _ in range(8)}) > 1
with palestra.make("science:find-animal-train") as env:
    assert len({look() for _ in range(8)}) == 1
bare.close()
