"""Unmodified agents of other frameworks, which add three numbers with a tool, and a script that plays the model for them."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from palestra.agents import OpenEpisode
from palestra.core import Sampling

__all__ = ["AGENTS", "question", "write"]

SYSTEM = "You add numbers with your tool."
_QUESTION = re.compile(r"What is (\d) \+ (\d) \+ (\d)\?")


def question(a: int, b: int, c: int) -> str:
    return f"What is {a} + {b} + {c}? Add two numbers at a time."


def write(prompt: str, _: Sampling) -> str:
    """Add two numbers, then the third, then answer. Results come back as tool responses, or as observations in plain text."""
    asked = list(_QUESTION.finditer(prompt))[-1]  # prompts of frameworks have examples before the task
    a, b, c = (int(number) for number in asked.groups())
    seen = prompt[asked.end() :]
    done = max(seen.count("<tool_response>"), seen.count("Observation:"))
    if done >= 2 and '"final_answer"' in prompt:
        return _call("final_answer", {"answer": str(a + b + c)})
    if done >= 2:
        return f"The sum is {a + b + c}."
    return "I add. " + _call("add", {"a": a, "b": b} if done == 0 else {"a": a + b, "b": c})


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def openai_agents(episode: OpenEpisode, question: str, *, responses: bool = False) -> str:
    import openai

    import agents

    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=episode.openai_url, api_key=episode.key)
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
    agent = agents.Agent(
        name="adder", instructions=SYSTEM, model=kind(model="policy", openai_client=client), tools=[agents.function_tool(add)]
    )
    result = await agents.Runner.run(agent, question)
    await client.close()
    return str(result.final_output)


async def openai_agents_responses(episode: OpenEpisode, question: str) -> str:
    return await openai_agents(episode, question, responses=True)


async def langgraph(episode: OpenEpisode, question: str) -> str:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    async with httpx.AsyncClient() as http:
        model = ChatOpenAI(model="policy", base_url=episode.openai_url, api_key=episode.key, http_async_client=http)
        agent = create_agent(model, [add], system_prompt=SYSTEM)
        return str((await agent.ainvoke({"messages": [("user", question)]}))["messages"][-1].content)


async def langgraph_anthropic(episode: OpenEpisode, question: str) -> str:
    from langchain.agents import create_agent
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model="policy", base_url=episode.anthropic_url, api_key=episode.key)
    agent = create_agent(model, [add], system_prompt=SYSTEM)
    # The client stays open: the package shares it among all models of one address.
    return str((await agent.ainvoke({"messages": [("user", question)]}))["messages"][-1].text)


async def pydantic_ai(episode: OpenEpisode, question: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async with httpx.AsyncClient() as http:
        provider = OpenAIProvider(base_url=episode.openai_url, api_key=episode.key, http_client=http)
        agent = Agent(OpenAIChatModel("policy", provider=provider), system_prompt=SYSTEM, tools=[add])
        return str((await agent.run(question)).output)


async def pydantic_ai_anthropic(episode: OpenEpisode, question: str) -> str:
    import httpx2  # Anthropic's client takes no other
    from pydantic_ai import Agent
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    async with httpx2.AsyncClient() as http:
        provider = AnthropicProvider(base_url=episode.anthropic_url, api_key=episode.key, http_client=http)
        agent = Agent(AnthropicModel("policy", provider=provider), system_prompt=SYSTEM, tools=[add])
        return str((await agent.run(question)).output)


async def smolagents(episode: OpenEpisode, question: str) -> str:
    # Not in the loop's own threads, which the gateway needs to answer.
    return await asyncio.get_running_loop().run_in_executor(_THREADS, _smolagents, episode, question)


_THREADS = ThreadPoolExecutor(16)


def _smolagents(episode: OpenEpisode, question: str) -> str:
    from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel(model_id="policy", api_base=episode.openai_url, api_key=episode.key)
    try:
        return str(ToolCallingAgent(tools=[tool(add)], model=model, verbosity_level=LogLevel.OFF).run(question))
    finally:
        model.client.close()


async def autogen(episode: OpenEpisode, question: str) -> str:
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
    result = await agent.run(task=question)
    await client.close()
    return str(result.messages[-1].content)


AGENTS: dict[str, tuple[Callable[[OpenEpisode, str], Awaitable[str]], float]] = {
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
