"""Episodes of deep search for the tests."""

import re

from palestra.core import Step
from palestra.worlds.deepsearch.env import DeepSearch, _answer

SMALL = 600
"""Documents of the world that the tests search."""
TURNS = 30


async def played(env: DeepSearch, seed: int, player: str = "oracle") -> list[Step]:
    """The steps of an episode."""
    await env.reset(seed=seed)
    steps: list[Step] = []
    while len(steps) < TURNS and not (steps and steps[-1].terminated):
        steps.append(await env.step(await (env.oracle() if player == "oracle" else env.sample_random_action())))
    return steps


async def guessed(env: DeepSearch, seed: int) -> float:
    """The score of an agent that reads the right document, but not the question: it answers with one name after the other."""
    await env.reset(seed=seed)
    while (action := await env.oracle()).startswith("<search>"):
        await env.step(action)
    title = max(env._read, key=lambda title: env.question.answers[0] in env._read[title])
    names = re.findall(r"(?:The )?[A-Z]\w+(?: [A-Z]\w+)*(?: of [A-Z]\w+)?|\d+", env._read[title])
    for name in dict.fromkeys([title, *names]):
        step = await env.step(_answer(name))
        if step.terminated:
            return step.reward
    return 0.0
