"""Unmodified agents of other frameworks over a real model: a tiny one, sampled in this process by transformers.

Each agent plays 200 episodes of questions that the model has learnt by heart. The model can be wrong, and an agent can refuse
what it writes: every episode is answered or failed, and all sampled tokens are in the recordings, whatever the agent did.
"""

import asyncio
import os
from collections import Counter
from typing import Any

import pytest
from tests.agents.adder import QUESTIONS, trained_adder
from tests.agents.foreign import AGENTS, question
from tests.agents.witness import compare, renderers_of

from palestra.agents import Gateway, Recording
from palestra.agents.episode import SamplingRule
from palestra.core import EngineSession, Generation, Sampling
from palestra.encoding import Ints
from palestra.engines.hf import HFEngine
from palestra.trajectory import Tokens

pytestmark = [pytest.mark.bridges, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

EPISODES = int(os.environ.get("PALESTRA_AGENT_EPISODES", "200"))
TOGETHER = 16
SOLVED = dict.fromkeys(AGENTS, 0.5) | {"smolagents": 0.0}
"""A model that had learnt nothing would solve no task; the real shares are printed. The prompt of smolagents is four times as
long as the others, and this model seldom gets to its end."""


class Watched(HFEngine):
    """Remembers all that it samples."""

    sampled: list[Tokens]

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        generation = await super().generate(prompt, sampling, session)
        self.sampled.append(generation.tokens)
        return generation


@pytest.fixture(scope="module")
def adder() -> tuple[Any, Any]:
    return asyncio.run(trained_adder())


@pytest.mark.parametrize("name", AGENTS)
async def test_every_episode_of_an_agent_over_a_model_is_accounted_for(name: str, adder: tuple[Any, Any]) -> None:
    model, tokenizer = adder
    engine = Watched(model, decode=tokenizer.decode)
    engine.sampled = []
    gateway = Gateway(engine, renderers_of(tokenizer), rule=SamplingRule(Sampling(max_tokens=96, temperature=0.3)))
    ends: Counter[str] = Counter()
    recordings: list[Recording] = []

    async def play(slots: asyncio.Semaphore, number: int) -> None:
        numbers = QUESTIONS[number % len(QUESTIONS)]
        async with slots:
            episode = gateway.open(seed=number)
            try:
                answer = await asyncio.wait_for(AGENTS[name][0](episode, question(*numbers)), 120)
            except Exception as error:  # whatever a framework makes of a reply that it cannot read
                ends[f"failed: {type(error).__name__}"] += 1
            else:
                ends["right" if str(sum(numbers)) in answer else "wrong"] += 1
            recordings.append(await gateway.close(episode))

    async with gateway.serving():
        slots = asyncio.Semaphore(TOGETHER)
        async with asyncio.TaskGroup() as group:
            for number in range(EPISODES):
                group.create_task(play(slots, number))
    await engine.close()
    assert ends.total() == len(recordings) == EPISODES
    compare(recordings, engine.sampled)
    calls = sum(len(one.calls) for one in recordings)
    later = sum((Counter(one.links) for one in recordings), Counter())
    merged = later["extended"] / max(1, calls - later["start"])
    print(f"{name}: {EPISODES} episodes {dict(ends)}, {calls} calls, {merged:.0%} of the later ones continued recorded ids")
    assert ends["right"] >= SOLVED[name] * EPISODES
