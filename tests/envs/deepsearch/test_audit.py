"""AgentGym's defect in deep search: a wrong answer is called wrong and may be tried again.

An agent that reads the right document and gives every name in it as its answer learns from the environment when to stop. The
mended rule ends the episode at the first answer.
"""

import re

from tests.envs.deepsearch.episodes import SMALL

from palestra.envs.deepsearch import DeepSearch
from palestra.envs.deepsearch.env import _answer

TASKS = 20


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


async def test_a_wrong_answer_may_be_tried_again_under_agentgym_s_rule_and_ends_the_episode_under_ours() -> None:
    scores = {}
    for retry in (True, False):
        env = DeepSearch(hops=2, retry=retry, documents=SMALL)
        scores[retry] = sum([await guessed(env, seed) for seed in range(TASKS)]) / TASKS
    assert scores[True] >= 0.9
    assert scores[False] == 0.0


async def test_two_lines_show_it() -> None:
    env = DeepSearch(retry=True, documents=SMALL)
    await env.reset(seed=0)
    wrong, right = await env.step(_answer("nobody")), await env.step(_answer(env.question.answers[0]))
    assert (wrong.terminated, right.reward) == (False, 1.0)
