"""Agents that tests play with: plain HTTP, no framework."""

import json
import time
import urllib.request
from typing import Any

import aiohttp


def _request(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"model": "any", "messages": messages}


async def stepping(episode: Any) -> None:
    """Ask the model, take its reply as the action, until the episode ends."""
    messages = [dict(one) for one in episode.messages]
    headers = {"Authorization": f"Bearer {episode.api_key}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        while not episode.done:
            async with session.post(f"{episode.base_url}/chat/completions", json=_request(messages)) as answer:
                said = (await answer.json())["choices"][0]["message"]
            messages.append({"role": "assistant", "content": said["content"]})
            messages.append({"role": "user", "content": await episode.step(said["content"])})


def plain(episode: Any) -> None:
    """The same as a plain function."""
    messages = [dict(one) for one in episode.messages]
    while not episode.done:
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
