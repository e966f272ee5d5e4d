"""Agents that tests play with: plain HTTP, no framework."""

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from palestra.tools.mcp import McpServer


@asynccontextmanager
async def chatting(episode: Any) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """A function that asks the model: messages, headers and further fields of the request → the text of the reply."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {episode.api_key}"}) as session:

        async def asking(messages: list[dict[str, str]], headers: dict[str, str] | None = None, **fields: Any) -> str:
            body = {"model": "any", "messages": messages, **fields}
            async with session.post(f"{episode.base_url}/chat/completions", json=body, headers=headers) as answer:
                text: str = (await answer.json())["choices"][0]["message"]["content"]
                return text

        yield asking


async def stepping(episode: Any) -> None:
    """Ask the model, take its reply as the action, until the episode ends."""
    messages = [dict(message) for message in episode.messages]
    async with chatting(episode) as asking:
        while not episode.ended:
            reply = await asking(messages)
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": await episode.step(reply)}]


def plain(episode: Any) -> None:
    """The same as a plain function."""
    messages = [dict(message) for message in episode.messages]
    while not episode.ended:
        reply = ask(episode, messages)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": episode.step(reply)}]


def ask(episode: Any, messages: list[dict[str, str]]) -> str:
    headers = {"Authorization": f"Bearer {episode.api_key}", "Content-Type": "application/json"}
    body = json.dumps({"model": "any", "messages": messages}).encode()
    request = urllib.request.Request(f"{episode.base_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request) as answer:
        text: str = json.loads(answer.read())["choices"][0]["message"]["content"]
        return text


def answering(episode: Any) -> str:
    """The reply is the action; the program takes no step."""
    return ask(episode, [dict(message) for message in episode.messages])


def sleeping(episode: Any) -> None:
    time.sleep(3600)


def failing(episode: Any) -> None:
    raise KeyError("the agent is broken")


def tools_of(episode: Any) -> Any:
    """The environment's tools, by the official client over HTTP."""
    return McpServer(url=episode.mcp_url, headers={"Authorization": f"Bearer {episode.api_key}"})


async def _guessing(server: Any) -> None:
    async with server:
        session, number, going_on = await server.take(), 0, True
        while going_on:
            number += 1
            going_on = (await session.call("act", {"action": f"\\boxed{{{number}}}"})).ok
        await server.give_back(session)


async def by_mcp(episode: Any) -> None:
    """Guess 1, 2, 3, … by MCP over HTTP, until the door says that the episode has ended."""
    await _guessing(tools_of(episode))


async def by_command(episode: Any) -> None:
    """The same over the standard streams of a command."""
    await _guessing(McpServer(command=episode.mcp_command, environment=episode.mcp_environment))


def plain_by_mcp(episode: Any) -> None:
    """The same from a plain function, which calls the model as well."""
    ask(episode, [dict(message) for message in episode.messages])
    asyncio.run(by_mcp(episode))


async def with_helpers(episode: Any) -> None:
    """Ask two helpers at the same time, which answer from the same history, then ask for the action."""
    messages = [dict(message) for message in episode.messages]
    async with chatting(episode) as asking:
        while not episode.ended:
            helpers = [asking([*messages, {"role": "user", "content": f"Helper {number}?"}]) for number in range(2)]
            random.shuffle(helpers)  # what a busy machine does
            await asyncio.gather(*helpers)
            action = await asking(messages)
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": await episode.step(action)}]
