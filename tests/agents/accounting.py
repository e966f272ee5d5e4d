"""Unmodified agents of other frameworks over an engine that samples a real model, and the proof that nothing was lost."""

import asyncio
import os
from collections import Counter
from typing import Any

from tests.agents.adder import QUESTIONS
from tests.agents.foreign import AGENTS, question
from tests.agents.witness import compare, renderers_of

from palestra.agents import Gateway, Recording
from palestra.agents.episode import SamplingRule
from palestra.core import Engine, EngineSession, Generation, Sampling
from palestra.encoding import Ints
from palestra.trajectory import Tokens

__all__ = ["play_and_account"]

EPISODES = int(os.environ.get("PALESTRA_AGENT_EPISODES", "200"))
TOGETHER = 16
SOLVED = dict.fromkeys(AGENTS, 0.5) | {"smolagents": 0.0}
"""A model that had learnt nothing would solve no task; the real shares are printed. The prompt of smolagents is four times as
long as the others, and this model seldom gets to its end."""


def watch(engine: Engine) -> list[Tokens]:
    """Return a list that receives all that the engine samples from now on."""
    sampled: list[Tokens] = []
    generate = engine.generate

    async def watched(prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        generation = await generate(prompt, sampling, session)
        sampled.append(generation.tokens)
        return generation

    engine.generate = watched  # type: ignore[method-assign]
    return sampled


async def play_and_account(name: str, engine: Engine, tokenizer: Any) -> None:
    """Let an agent play all episodes, and assert that each is accounted for and that the recordings hold every sampled token.

    The model can be wrong, and an agent can refuse what it writes. Such an episode is accounted for all the same.
    """
    sampled = watch(engine)
    gateway = Gateway(engine, renderers_of(tokenizer), rule=SamplingRule(Sampling(max_tokens=96, temperature=0.3)))
    ends: Counter[str] = Counter()
    recordings: list[Recording] = []
    slots = asyncio.Semaphore(TOGETHER)

    async def play(number: int) -> None:
        numbers = QUESTIONS[number % len(QUESTIONS)]
        async with slots:
            episode = gateway.open(seed=number)
            try:
                answer = await asyncio.wait_for(AGENTS[name][0](episode, question(*numbers)), 120)
            except Exception as error:  # noqa: BLE001 - whatever a framework makes of a reply that it cannot read
                ends[f"failed: {type(error).__name__}"] += 1
            else:
                ends["right" if str(sum(numbers)) in answer else "wrong"] += 1
            recordings.append(await gateway.close(episode))

    async with gateway.serving(), asyncio.TaskGroup() as group:
        for number in range(EPISODES):
            group.create_task(play(number))
    assert ends.total() == len(recordings) == EPISODES
    compare(recordings, sampled)
    calls = sum(len(one.calls) for one in recordings)
    later = sum((Counter(one.links) for one in recordings), Counter())
    merged = later["extended"] / max(1, calls - later["start"])
    print(f"{name}: {EPISODES} episodes {dict(ends)}, {calls} calls, {merged:.0%} of the later ones continued recorded ids")
    assert ends["right"] >= SOLVED[name] * EPISODES
