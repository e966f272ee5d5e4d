"""Agents that tests play with: plain HTTP, no framework."""

import json
import random
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp


def _request(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"model": "any", "messages": messages}


@asynccontextmanager
async def chatting(episode: Any) -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """A function that asks the model: messages, headers and further fields of the request → the text of the reply."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {episode.api_key}"}) as session:

        async def asking(messages: list[dict[str, str]], headers: dict[str, str] | None = None, **fields: Any) -> str:
            body = {**_request(messages), **fields}
            async with session.post(f"{episode.base_url}/chat/completions", json=body, headers=headers) as answer:
                text: str = (await answer.json())["choices"][0]["message"]["content"]
                return text

        yield asking


async def stepping(episode: Any) -> None:
    """Ask the model, take its reply as the action, until the episode ends."""
    messages = [dict(one) for one in episode.messages]
    async with chatting(episode) as asking:
        while not episode.ended:
            said = await asking(messages)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": await episode.step(said)}]


def plain(episode: Any) -> None:
    """The same as a plain function."""
    messages = [dict(one) for one in episode.messages]
    while not episode.ended:
        said = ask(episode, messages)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": episode.step(said)}]


def ask(episode: Any, messages: list[dict[str, str]]) -> str:
    headers = {"Authorization": f"Bearer {episode.api_key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{episode.base_url}/chat/completions", json.dumps(_request(messages)).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        text: str = json.loads(answer.read())["choices"][0]["message"]["content"]
        return text


def answering(episode: Any) -> str:
    """The reply is the action; the program takes no step."""
    return ask(episode, [dict(one) for one in episode.messages])


def sleeping(episode: Any) -> None:
    time.sleep(3600)


def failing(episode: Any) -> None:
    raise KeyError("the agent is broken")


def tools_of(episode: Any) -> Any:
    """The environment's tools, by the official client over HTTP."""
    from palestra.tools.mcp import McpServer

    return McpServer(url=episode.mcp_url, headers={"Authorization": f"Bearer {episode.api_key}"})


async def _guessing(server: Any) -> None:
    async with server:
        session = await server.take()
        for number in range(1, 40):
            result = await session.call("act", {"action": f"\\boxed{{{number}}}"})
            if not result.ok:
                break
        await server.give_back(session)


async def by_mcp(episode: Any) -> None:
    """Guess 1, 2, 3, … by MCP over HTTP, until the door says that the episode has ended."""
    await _guessing(tools_of(episode))


async def by_command(episode: Any) -> None:
    """The same over the standard streams of a command."""
    from palestra.tools.mcp import McpServer

    await _guessing(McpServer(command=episode.mcp_command, environment=episode.mcp_environment))


def plain_by_mcp(episode: Any) -> None:
    """The same from a plain function, which calls the model as well."""
    import asyncio

    ask(episode, [dict(one) for one in episode.messages])
    asyncio.run(by_mcp(episode))


def sleeping_after_mcp(episode: Any) -> None:
    import asyncio

    async def one() -> None:
        async with tools_of(episode) as server:
            session = await server.take()
            await session.call("act", {"action": "\\boxed{1}"})
            await server.give_back(session)

    asyncio.run(one())
    time.sleep(3600)


def in_threads_and_by_mcp(episode: Any) -> None:
    """Take four steps in each of two threads and four by MCP, all at the same time. Fail if one sees another's observation."""
    from concurrent.futures import ThreadPoolExecutor

    headers = {"Authorization": f"Bearer {episode.api_key}", "Content-Type": "application/json"}

    def post(number: int, method: str, **params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        with urllib.request.urlopen(urllib.request.Request(episode.mcp_url, body, headers)) as answer:
            headers.setdefault("mcp-session-id", answer.headers.get("mcp-session-id") or "")
            return json.loads(answer.read())["result"]

    post(100, "initialize")

    def by_call(number: int, action: str) -> str:
        text: str = post(number, "tools/call", name="act", arguments={"action": action})["content"][0]["text"]
        return text

    def play(name: str) -> None:
        for number in range(4):
            action = f"{name}-{number}"
            seen = by_call(number, action) if name == "mcp" else episode.step(action)
            if seen != f"saw {action}":
                raise ValueError(f"{action} got the observation {seen!r}")

    with ThreadPoolExecutor() as pool:
        list(pool.map(play, ("mcp", "one", "two")))


async def with_helpers(episode: Any) -> None:
    """Ask two helpers at the same time, which answer from the same history, then ask for the action."""
    import asyncio

    messages = [dict(one) for one in episode.messages]
    async with chatting(episode) as asking:
        while not episode.ended:
            helpers = [asking([*messages, {"role": "user", "content": f"Helper {number}?"}]) for number in range(2)]
            random.shuffle(helpers)  # what a busy machine does
            await asyncio.gather(*helpers)
            action = await asking(messages)
            messages += [{"role": "assistant", "content": action}, {"role": "user", "content": await episode.step(action)}]
