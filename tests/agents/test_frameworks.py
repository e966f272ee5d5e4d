"""Unmodified agents of other frameworks play a task with tools through the gateway, token by token.

The model is scripted, over the tokenizer and chat template of Qwen3: it adds twice and then answers. Every agent plays 200
episodes, many at once. All of them are accounted for, and the recording is exactly what the engine saw and sampled. The test
prints the share of calls that continued recorded ids.
"""

import asyncio
import os
from collections import Counter

import pytest
from tests.agents.foreign import AGENTS, question, write
from tests.agents.witness import Witness, prove, renderers

from palestra.agents import Gateway

# The frameworks leave clients open and use parts of each other that are deprecated.
pytestmark = [pytest.mark.bridges, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

EPISODES = int(os.environ.get("PALESTRA_AGENT_EPISODES", "200"))
TOGETHER = 16


@pytest.mark.parametrize("name", AGENTS)
async def test_an_unmodified_agent_plays_and_every_episode_is_accounted_for(name: str) -> None:
    run, share = AGENTS[name]
    witness = Witness(write)
    gateway = Gateway(witness, renderers)
    links: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    sampled = 0

    async def play(slots: asyncio.Semaphore, number: int) -> None:
        nonlocal sampled
        async with slots:
            episode = gateway.open(seed=number)
            assert "9" in await run(episode, question(2, 3, 4))
            recording = await gateway.close(episode)
        links.update(recording.links)
        roles.update(str(call.role) for call in recording.calls)
        sampled += sum(len(one.logprobs) for segments in recording.segments.values() for one in segments)

    async with gateway.serving():
        slots = asyncio.Semaphore(TOGETHER)
        async with asyncio.TaskGroup() as group:
            for number in range(EPISODES):
                group.create_task(play(slots, number))
    assert links["start"] == EPISODES
    assert set(roles) == {"agent"}
    assert sampled == sum(len(tokens.ids) for tokens in witness.sampled)
    later = sum(links.values()) - links["start"]
    merged = links["extended"] / later
    print(f"{name}: {EPISODES} episodes, {sum(links.values())} calls, {merged:.0%} of the later ones continued recorded ids")
    assert merged == share


@pytest.mark.parametrize("name", AGENTS)
async def test_the_recording_of_an_agent_is_what_the_engine_saw(name: str) -> None:
    witness = Witness(write)
    gateway = Gateway(witness, renderers)
    async with gateway.serving():
        episode = gateway.open()
        await AGENTS[name][0](episode, question(2, 3, 4))
        recording = await gateway.close(episode)
    prove(recording, witness)
    assert len(recording.calls) >= 3
