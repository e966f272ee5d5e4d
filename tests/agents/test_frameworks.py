"""Unmodified agents of other frameworks play a task with tools through the gateway, token by token.

The model is scripted, over the tokenizer and chat template of Qwen3: it adds twice and then answers. Every agent plays 200
episodes, many at once. All of them are accounted for, and the recording is exactly what the engine saw and sampled. The test
prints the share of calls that continued recorded ids.
"""

import asyncio
import gc
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.agents.witness import Witness, prove, renderers

from palestra.agents import Gateway, OpenEpisode
from palestra.core import Sampling

# The frameworks leave clients open and use parts of each other that are deprecated.
pytestmark = [pytest.mark.bridges, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]

EPISODES = int(os.environ.get("PALESTRA_AGENT_EPISODES", "200"))
TOGETHER = 16
QUESTION = "What is 2 + 3 + 4? Add two numbers at a time."
SYSTEM = "You add numbers with your tool."


def write(prompt: str, _: Sampling) -> str:
    """Add 2 and 3, then 5 and 4, then answer. Results come back as tool responses, or as observations in plain text."""
    said = prompt.partition(QUESTION)[2]  # prompts of frameworks have examples before the task
    done = max(said.count("<tool_response>"), said.count("Observation:"))
    if done >= 2 and '"final_answer"' in prompt:
        return _call("final_answer", {"answer": "9"})
    if done >= 2:
        return "The sum is 9."
    return "I add. " + _call("add", {"a": 2, "b": 3} if done == 0 else {"a": 5, "b": 4})


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


# ------------------------------------------------------------------------------------------------------------------- the agents


async def openai_agents(episode: OpenEpisode, *, responses: bool = False) -> str:
    import openai

    import agents

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=episode.openai_url, api_key=episode.key)
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
    agent = agents.Agent(
        name="adder", instructions=SYSTEM, model=kind(model="policy", openai_client=client), tools=[agents.function_tool(add)]
    )
    result = await agents.Runner.run(agent, QUESTION)
    await client.close()
    return str(result.final_output)


async def openai_agents_responses(episode: OpenEpisode) -> str:
    return await openai_agents(episode, responses=True)


async def langgraph(episode: OpenEpisode) -> str:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    async with httpx.AsyncClient() as http:
        model = ChatOpenAI(model="policy", base_url=episode.openai_url, api_key=episode.key, http_async_client=http)
        agent = create_agent(model, [add], system_prompt=SYSTEM)
        return str((await agent.ainvoke({"messages": [("user", QUESTION)]}))["messages"][-1].content)


async def langgraph_anthropic(episode: OpenEpisode) -> str:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model="policy", base_url=episode.anthropic_url, api_key=episode.key)
    agent = create_agent(model, [add], system_prompt=SYSTEM)
    try:
        return str((await agent.ainvoke({"messages": [("user", QUESTION)]}))["messages"][-1].text)
    finally:
        await model._async_client.close()


async def pydantic_ai(episode: OpenEpisode) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with httpx.AsyncClient() as http:
        provider = OpenAIProvider(base_url=episode.openai_url, api_key=episode.key, http_client=http)
        agent = Agent(OpenAIChatModel("policy", provider=provider), system_prompt=SYSTEM, tools=[add])
        return str((await agent.run(QUESTION)).output)


async def pydantic_ai_anthropic(episode: OpenEpisode) -> str:
    import httpx2  # Anthropic's client takes no other
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    async with httpx2.AsyncClient() as http:
        provider = AnthropicProvider(base_url=episode.anthropic_url, api_key=episode.key, http_client=http)
        agent = Agent(AnthropicModel("policy", provider=provider), system_prompt=SYSTEM, tools=[add])
        return str((await agent.run(QUESTION)).output)


async def smolagents(episode: OpenEpisode) -> str:
    return await asyncio.to_thread(_smolagents, episode)


def _smolagents(episode: OpenEpisode) -> str:
    from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel(model_id="policy", api_base=episode.openai_url, api_key=episode.key)
    try:
        return str(ToolCallingAgent(tools=[tool(add)], model=model, verbosity_level=LogLevel.OFF).run(QUESTION))
    finally:
        model.client.close()


async def autogen(episode: OpenEpisode) -> str:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info: Any = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    }
    client = OpenAIChatCompletionClient(model="policy", base_url=episode.openai_url, api_key=episode.key, model_info=info)
    agent = AssistantAgent("adder", client, tools=[add], system_message=SYSTEM, max_tool_iterations=5)
    result = await agent.run(task=QUESTION)
    await client.close()
    return str(result.messages[-1].content)


AGENTS: dict[str, tuple[Callable[[OpenEpisode], Awaitable[str]], float]] = {
    "openai_agents": (openai_agents, 1.0),
    "openai_agents_responses": (openai_agents_responses, 1.0),
    "langgraph": (langgraph, 1.0),
    "langgraph_anthropic": (langgraph_anthropic, 1.0),
    "pydantic_ai": (pydantic_ai, 1.0),
    "pydantic_ai_anthropic": (pydantic_ai_anthropic, 1.0),
    # It rewrites its own replies, so no call can continue recorded ids.
    "smolagents": (smolagents, 0.0),
    "autogen": (autogen, 1.0),
}
"""Agent → how to run it, and the share of its later calls that continue recorded ids."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What a framework leaves open is closed while its warnings are ignored."""
    yield
    gc.collect()


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
            assert "9" in await run(episode)
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
        await AGENTS[name][0](episode)
        recording = await gateway.close(episode)
    prove(recording, witness)
    assert len(recording.calls) >= 3
