"""Unmodified agents of other frameworks play a task with tools through the gateway, token by token.

The model is scripted, over the tokenizer and chat template of Qwen3: it adds twice and then answers. Every agent plays 200
episodes, many at once. All of them are accounted for, and the recordings are exactly what the engine saw and sampled. The test
prints the share of calls that continued recorded ids. A model that errs writes some replies as no framework expects them.
"""

import asyncio
import importlib.util
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.agents.foreign import AGENTS, question, write
from tests.agents.test_program import check, play, program
from tests.agents.witness import Witness, compare, renderers

from palestra.agents import Gateway, Recording
from palestra.agents.episode import SamplingRule
from palestra.core import Sampling

# The frameworks leave clients open and use parts of each other that are deprecated.
pytestmark = [pytest.mark.bridges, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

EPISODES = int(os.environ.get("PALESTRA_AGENT_EPISODES", "200"))
TOGETHER = 16
TUTORIAL = Path(__file__).parents[2] / "docs" / "snippets" / "langgraph" / "my_agent.py"


def erring(prompt: str, sampling: Sampling) -> str:
    """One reply in six has a call that cannot be read, calls an unknown tool, rambles until the limit, or is empty."""
    chance = random.Random(prompt)
    if chance.random() < 5 / 6:
        return write(prompt, sampling)
    unknown = '<tool_call>\n{"name": "subtract", "arguments": {}}\n</tool_call>'
    return chance.choice(["<tool_call>\n{oops\n</tool_call>", unknown, "and so on " * 200, ""])


async def played_by(name: str, witness: Witness) -> tuple[Counter[str], list[Recording]]:
    """Let an agent play all episodes. Return how they ended, and the recordings: those of what the engine saw and sampled."""
    gateway = Gateway(witness, renderers, rule=SamplingRule(Sampling(max_tokens=128)))
    ends: Counter[str] = Counter()
    recordings: list[Recording] = []
    slots = asyncio.Semaphore(TOGETHER)

    async def play_one(number: int) -> None:
        async with slots:
            episode = gateway.open(seed=number)
            try:
                answer = await AGENTS[name][0](episode, question(2, number % 7, 4))
            except Exception:  # noqa: BLE001 - whatever a framework makes of a reply that it cannot read
                ends["failed"] += 1
            else:
                ends["right" if str(6 + number % 7) in answer else "wrong"] += 1
            recordings.append(await gateway.close(episode))

    async with gateway.serving(), asyncio.TaskGroup() as group:
        for number in range(EPISODES):
            group.create_task(play_one(number))
    assert ends.total() == len(recordings) == EPISODES
    compare(recordings, witness.sampled)
    return ends, recordings


@pytest.mark.parametrize("name", AGENTS)
async def test_an_unmodified_agent_plays_and_its_calls_continue_recorded_ids(name: str) -> None:
    ends, recordings = await played_by(name, Witness(write))
    assert ends == {"right": EPISODES}
    assert {str(call.role) for recording in recordings for call in recording.calls} == {"agent"}
    assert all(len(recording.calls) >= 3 for recording in recordings)
    links = sum((Counter(recording.links) for recording in recordings), Counter())
    assert links["start"] == EPISODES
    merged = links["extended"] / (links.total() - EPISODES)
    print(f"{name}: {EPISODES} episodes, {links.total()} calls, {merged:.0%} of the later ones continued recorded ids")
    assert merged == AGENTS[name][1]


@pytest.mark.parametrize("name", AGENTS)
async def test_every_episode_of_a_model_that_errs_is_accounted_for(name: str) -> None:
    ends, recordings = await played_by(name, Witness(erring))
    print(f"{name}: {dict(ends)}, {sum(len(recording.calls) for recording in recordings)} calls")
    assert ends["right"] > 0


def _tutorial() -> Any:
    pytest.importorskip("langgraph")
    spec = importlib.util.spec_from_file_location("my_agent", TUTORIAL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


async def test_the_agent_of_the_tutorial_plays_and_every_call_continues() -> None:
    for trajectory in await play(program(_tutorial()), n=8):
        assert not trajectory.failures
        check(trajectory)
        links = [call.link for call in trajectory.agent.calls]  # type: ignore[union-attr]
        assert links == ["start", *["extended"] * (len(trajectory.turns) - 1)]
