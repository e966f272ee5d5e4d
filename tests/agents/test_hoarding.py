"""More than fifty ways of one key to make a gateway hold memory or its event loop. None gets beyond the documented bounds."""

import asyncio
import contextlib
import gc
import io
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import aiohttp
import pytest
from tests.agents.driving import post
from tests.agents.test_holdings import ANTHROPIC, CHAT, COUNT, MANY, REFUSED, RESPONSES, user
from tests.hoarding import MEGABYTE, Child, Watch, check, child, obey, pour, raw, ways

from palestra.agents import Gateway, GatewayLimits, OpenEpisode
from palestra.agents.rendezvous import ActionAnswer
from palestra.agents.tooldoor import ToolDoor
from palestra.core import EngineSession, Generation, Sampling
from palestra.foundation.encoding import Ints
from palestra.testing.scripted import ByteRenderer, ScriptedEngine

STOP = 0
LIMITS = GatewayLimits(memory=16 * MEGABYTE, total_memory=20 * MEGABYTE, read_seconds=3.0, write_seconds=1.0, head_seconds=1.0)
SLACK = 64
"""Megabytes beside the bound: what the decoder takes for one request, and what the allocator does not return."""


# ------------------------------------------------------------------------------------------------------------------- the child


class Stalling(ScriptedEngine):
    """An engine that can be made to keep what has long prompts waiting."""

    def __init__(self) -> None:
        super().__init__(write, context_length=2**30)
        self.going_on = asyncio.Event()
        self.going_on.set()

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        if len(prompt) > 1000:
            await self.going_on.wait()
        return await super().generate(prompt, sampling, session)


def write(prompt: Ints, sampling: Sampling) -> list[int]:
    return [*f"reply {len(prompt)}".encode(), STOP]


def serve(pipe: Any) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe: Any) -> None:
    engine = Stalling()
    gateway = Gateway(engine, ByteRenderer().with_tools, limits=LIMITS)
    episodes: list[OpenEpisode] = []

    async def honest() -> None:
        episode = gateway.open()
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}).encode()
        await post(gateway, "/v1/chat/completions", body, {"authorization": f"Bearer {episode.key}"})
        await gateway.close(episode)

    async def opened(_: Any) -> tuple[str, str]:
        episode = gateway.open()
        episodes.append(episode)

        async def take(action: str) -> ActionAnswer:
            return ActionAnswer("o" * 50_000, played=True)

        episode.record.door = ToolDoor(lambda: (), take, lambda: False, episode.record.memory, LIMITS.pending)
        return gateway.url, episode.key

    async def ended(_: Any) -> None:
        """Close the episodes. Nothing of them is counted once their last request, whose client may be gone, is over."""
        for episode in episodes:
            assert episode.record.door is not None
            episode.record.door.close()
            await gateway.close(episode)
        async with asyncio.timeout(60):
            while any(episode.record.memory.held for episode in episodes):
                await asyncio.sleep(0.01)
        episodes.clear()

    async def paused(_: Any) -> None:
        engine.going_on.clear()

    async def resumed(_: Any) -> None:
        engine.going_on.set()

    async with gateway.serving():
        gc.collect()
        gc.freeze()  # the modules that tests import are no part of what is measured
        commands = {"open": opened, "end": ended, "pause": paused, "resume": resumed}
        await obey(pipe, Watch(honest, lambda: gateway.memory.held), commands)


@pytest.fixture(scope="module")
def gateway() -> Iterator[Child]:
    with child(serve) as running:
        yield running


# -------------------------------------------------------------------------------------------------------------------- the ways


class Attacker:
    """A client with one key."""

    def __init__(self, url: str, key: str, session: aiohttp.ClientSession, gateway: Child) -> None:
        self.url, self.key, self.session, self.gateway = url, key, session, gateway
        self.auth = {"Authorization": f"Bearer {key}"}
        self.refusals: set[str] = set()

    async def send(self, path: str, body: Any, headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            async with self.session.post(
                self.url + path, data=io.BytesIO(data), headers={**self.auth, **(headers or {})}
            ) as answer:
                text = await answer.text()
                if answer.status != 200:
                    self.refusals.add(f"{answer.status} {text[:300]}")

    async def together(self, path: str, bodies: Sequence[Any], headers: Callable[[int], dict[str, str]] | None = None) -> None:
        async with asyncio.TaskGroup() as group:
            for number, body in enumerate(bodies):
                group.create_task(self.send(path, body, headers(number) if headers else None))

    def head(self, path: str, *more: str) -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.key}", *more, "", ""]
        return "\r\n".join(lines).encode()


MCP = "/mcp"
Way = Callable[[Attacker], Awaitable[None]]
LONG = "x" * MEGABYTE


async def repeated(attacker: Attacker, path: str, body: Callable[[int], Any], count: int) -> None:
    for first in range(0, count, 8):
        await attacker.together(path, [body(number) for number in range(first, min(first + 8, count))])


def _long(body: Callable[[str], Any], number: int) -> Any:
    return body(f"{number}{LONG}")


def _fixed(body: Any, number: int) -> Any:
    return body


def talk(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages), "max_tokens": 8, **fields}


def called(count: int, arguments: str = "") -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}] * count}


async def many_keys(attacker: Attacker) -> None:
    for first in range(0, 1500, 50):
        bodies = [{"messages": [user("same")], "max_tokens": 8}] * 50
        await attacker.together(CHAT, bodies, lambda number, first=first: {"Idempotency-Key": f"{first + number}{'k' * 200}"})  # type: ignore[misc]


async def one_key_many_bodies(attacker: Attacker) -> None:
    bodies = [{"messages": [user(f"{number}{LONG}")], "max_tokens": 8} for number in range(24)]
    await attacker.together(CHAT, bodies, lambda _: {"Idempotency-Key": "same"})


async def header(attacker: Attacker, name: str, size: int) -> None:
    await attacker.together(CHAT, [{"messages": [user("x")]}] * 20, lambda number: {name: f"{number}".rjust(size, "h")})


async def vanishing(attacker: Attacker) -> None:
    attacker.gateway.ask("pause")
    try:
        for number in range(150):
            body = json.dumps({"messages": [user(f"{number}" + "v" * 300_000)], "stream": bool(number % 2)}).encode()
            async with raw(attacker.url) as (_, writer):
                await pour(writer, attacker.head(CHAT, f"Content-Length: {len(body)}") + body)
                await asyncio.sleep(0.005)
    finally:
        attacker.gateway.ask("resume")


async def partly(attacker: Attacker, count: int = 80, size: int = MEGABYTE) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(count):
            _, writer = await stack.enter_async_context(raw(attacker.url))
            await pour(writer, attacker.head(CHAT, f"Content-Length: {size + 10}") + b"p" * size, 0.2)


async def unread(attacker: Attacker, stream: bool) -> None:
    fields = {"input": "x", "instructions": "i" * 500_000, "stream": stream}
    body = json.dumps(fields).encode()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(70):
            _, writer = await stack.enter_async_context(raw(attacker.url))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await pour(writer, attacker.head(RESPONSES, f"Content-Length: {len(body)}") + body, 0.5)
        await asyncio.sleep(0.3)


async def chunks(attacker: Attacker) -> None:
    for _ in range(3):
        async with raw(attacker.url) as (_, writer):
            await pour(writer, attacker.head(CHAT, "Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 300_000)


async def pipelined(attacker: Attacker) -> None:
    body = b'{"messages":[{"role":"user","content":"p"}],"max_tokens":8}'
    async with raw(attacker.url) as (_, writer):
        await pour(writer, (attacker.head(CHAT, f"Content-Length: {len(body)}") + body) * 4000)


async def endless_head(attacker: Attacker) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            _, writer = await stack.enter_async_context(raw(attacker.url))
            await pour(writer, b"POST / HTTP/1.1\r\n" + b"a: b\r\n" * 200_000)


async def silent(attacker: Attacker) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(300):
            await stack.enter_async_context(raw(attacker.url))
        await asyncio.sleep(1.5)


async def chained(attacker: Attacker) -> None:
    previous = None
    for number in range(120):
        body = {
            "input": [user(f"{number} {at}") for at in range(100)],
            "previous_response_id": previous,
            "max_output_tokens": 8,
        }
        async with attacker.session.post(attacker.url + RESPONSES, json=body, headers=attacker.auth) as answer:
            told = await answer.json()
        if answer.status != 200:
            attacker.refusals.add(f"{answer.status} {told}")
            return
        previous = told["id"]


async def tools_called(attacker: Attacker, message: Callable[[int], Any], count: int = 400) -> None:
    start = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    async with attacker.session.post(attacker.url + MCP, json=start, headers=attacker.auth) as answer:
        session = answer.headers["mcp-session-id"]
    for first in range(0, count, 20):
        await attacker.together(
            MCP, [message(number) for number in range(first, first + 20)], lambda _: {"Mcp-Session-Id": session}
        )


def tool(number: int, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "act", "arguments": arguments}}


CALLED = {"type": "function_call", "name": "f", "call_id": "c", "arguments": "{}"}
TOOL = {"type": "function", "function": {"name": "f", "description": "d" * 200}}
LISTS = [{"type": "function", "function": {"name": "f", "parameters": {"a": [[]] * 40_000}}}]
REPEATED: dict[str, tuple[str, Callable[[int], Any], int]] = {
    # messages that are long
    **{f"long and refused: {kind}": (path, partial(_long, body), 40) for kind, (path, body) in REFUSED.items()},
    "long messages": (CHAT, lambda n: talk(user(f"{n}{LONG}")), 40),
    "long messages, temperature": (CHAT, lambda n: talk(user(f"{n}{LONG}"), temperature=-1), 40),
    "long messages, long stop": (CHAT, lambda n: talk(user(f"{n}{LONG}"), stop="s" * 100_000), 40),
    "long role": (CHAT, lambda n: talk({"role": f"{n}{LONG}", "content": "x"}), 40),
    "wide characters": (CHAT, lambda n: talk(user(f"{n}🎲{LONG}")), 40),
    "escaped characters": (CHAT, lambda n: talk(user(f"{n}" + "é" * 500_000)), 16),
    "bodies above the limit": (CHAT, lambda n: b'{"messages":"' + b"x" * 5 * MEGABYTE, 16),
    "punctuation in strings": (CHAT, lambda n: talk(user(f"{n}" + "[{,}]" * 200_000)), 16),
    "punctuation and escapes in strings": (CHAT, lambda n: talk(user(f"{n}" + "," * 50_001 + '"' * 1_900_000)), 8),
    "strings that do not end": (CHAT, lambda n: b'{"messages":"' + b'\\"' * 1_900_000, 16),
    "no JSON": (CHAT, lambda n: b'"' * 4_000_000, 8),
    "long arguments": (CHAT, lambda n: talk(user("x"), called(1, f"{n}{LONG}"), user("y")), 40),
    # many small parts
    **{f"too many {kind}": (path, partial(_fixed, body(count)), 8) for kind, (path, count, body) in MANY.items()},
    "many messages": (CHAT, lambda n: talk(*[user(f"{n} {at}") for at in range(4000)]), 16),
    "many objects": (CHAT, lambda n: b'{"n":%d,"messages":[%s]}' % (n, b",".join([b"{}"] * 1_300_000)), 8),
    "many parts": (CHAT, lambda n: talk(user(f"{n}"), user([{"type": "text"}] * 20_000)), 16),
    "many lists": (CHAT, lambda n: talk(user(f"{n}"), tool_choice=[[]] * 24_000), 24),
    "an unknown field of lists": (CHAT, lambda n: talk(user(f"{n}"), metadata=[[]] * 1_000_000), 8),
    "deep nesting": (CHAT, lambda n: b'{"messages":' + b"[" * 1_900_000, 8),
    "many calls of one message": (CHAT, lambda n: talk(user(f"{n}"), called(4000), user("y")), 16),
    "biases": (CHAT, lambda n: talk(user(f"{n}"), logit_bias={f"{at}": 1 for at in range(40_000)}), 16),
    # tools
    "many sets of tools": (CHAT, lambda n: talk(user("x"), tools=[TOOL, {**TOOL, "n": n}] * 100), 100),
    "a long list of tools": (CHAT, lambda n: talk(user("x"), tools=[TOOL] * 5000), 16),
    "tools of empty lists": (CHAT, lambda n: talk(user("x"), tools=[*LISTS, {**TOOL, "n": n}]), 24),
    # many small requests
    "many conversations": (CHAT, lambda n: talk(user(f"{n}")), 1200),
    "many forks": (CHAT, lambda n: talk(user(f"{n}"), *[user(f"{at}") for at in range(500)]), 100),
    # Anthropic's messages
    "many blocks": (ANTHROPIC, lambda n: talk(user([{"type": "tool_result", "tool_use_id": f"{n}"}] * 4000)), 16),
    "system blocks": (ANTHROPIC, lambda n: talk(user("x"), system=[{"type": "text", "text": f"{n}"}] * 60_000), 8),
    "counting tokens": (COUNT, lambda n: talk(user(f"{n}{LONG}")), 40),
    # Responses
    "long input": (RESPONSES, lambda n: {"input": f"{n}{LONG}", "max_output_tokens": 8}, 40),
    "long instructions": (RESPONSES, lambda n: {"input": f"{n}", "instructions": LONG, "max_output_tokens": 8}, 40),
    "unknown answers": (RESPONSES, lambda n: {"input": f"{n}{LONG}", "previous_response_id": f"resp_{LONG}"}, 16),
    "calls in a row": (RESPONSES, lambda n: {"input": [user(f"{n}"), *[CALLED] * 4000, user("y")], "max_output_tokens": 8}, 16),
    "items without text": (
        RESPONSES,
        lambda n: {"input": [user("x"), *[{"type": "reasoning", "id": f"{n} {at}"} for at in range(4000)]]},
        24,
    ),
    "many MCP sessions": (MCP, lambda n: {"jsonrpc": "2.0", "id": n, "method": "initialize", "params": {}}, 1000),
}
WAYS: dict[str, Way] = {
    **{name: partial(repeated, path=path, body=body, count=count) for name, (path, body, count) in REPEATED.items()},
    "many idempotency keys": many_keys,
    "one idempotency key with other bodies": one_key_many_bodies,
    "long idempotency keys": partial(header, name="Idempotency-Key", size=6000),
    "long session ids": partial(header, name="X-Session-Id", size=6000),
    "long roles": partial(header, name="X-Palestra-Role", size=6000),
    "chained answers": chained,
    # connections
    "clients that vanish": vanishing,
    "bodies that do not end": partly,
    "streams that are not read": partial(unread, stream=True),
    "answers that are not read": partial(unread, stream=False),
    "tiny chunks": chunks,
    "pipelined requests": pipelined,
    "endless heads": endless_head,
    "silent connections": silent,
    # the environment's tools
    "many steps": partial(tools_called, message=lambda n: tool(n, action="a")),
    "long actions": partial(tools_called, message=lambda n: tool(n, action=f"{n}{LONG}"), count=40),
    "arguments of empty lists": partial(tools_called, message=lambda n: tool(n, action=[[]] * 60_000), count=20),
    "long names of tools": partial(tools_called, message=lambda n: {**tool(n), "method": LONG}, count=40),
}
SAMPLE = ("long and refused: role", "many lists", "clients that vanish", "bodies that do not end", "many steps")


@pytest.mark.parametrize("name", ways(WAYS, SAMPLE, gate="bodies that do not end"))
def test_no_way_of_one_key_gets_beyond_the_bounds(gateway: Child, name: str) -> None:
    refusals: set[str] = set()

    async def attack() -> None:
        url, key = gateway.ask("open")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            attacker = Attacker(url, key, session, gateway)
            await WAYS[name](attacker)
        refusals.update(attacker.refusals)

    print(name, check(gateway, attack, LIMITS.total_memory / MEGABYTE + SLACK, LIMITS.total_memory))
    # Every refusal says what is wrong: a limit by name and number, or the field that cannot be taken.
    assert not any(refusal.startswith("5") and "GatewayLimits" not in refusal for refusal in refusals), refusals
    assert not any(refusal.startswith(("413", "429")) and "GatewayLimits." not in refusal for refusal in refusals), refusals
