"""What the requests of one key make the gateway keep, and how long they hold the event loop."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.driving import Response, post
from tests.agents.test_gateway import Letters, make, write

from palestra.agents import CallBudget, Gateway, GatewayLimits, OpenEpisode
from palestra.agents.exchange import check_values
from palestra.testing.scripted import ScriptedEngine

MEGABYTE = 2**20
CHAT, ANTHROPIC, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
COUNT = f"{ANTHROPIC}/count_tokens"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def send(gateway: Gateway, episode: OpenEpisode, path: str, body: Any, **headers: str) -> Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await post(gateway, path, data, {"authorization": f"Bearer {episode.key}", **headers})


REFUSED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "role": (CHAT, lambda text: {"messages": [user(text), {"role": "root", "content": "x"}]}),
    "image": (CHAT, lambda text: {"messages": [user(text), {"role": "user", "content": [{"type": "image_url"}]}]}),
    "system only": (CHAT, lambda text: {"messages": [{"role": "system", "content": text}]}),
    "tool": (CHAT, lambda text: {"messages": [user(text)], "tools": [{"type": "web_search"}]}),
    "n": (CHAT, lambda text: {"messages": [user(text)], "n": 3}),
    "stop": (CHAT, lambda text: {"messages": [user(text)], "stop": ["x"] * 100}),
    "model": (CHAT, lambda text: {"messages": [user(text)], "model": "m" * 300}),
    "anthropic role": (ANTHROPIC, lambda text: {"max_tokens": 5, "messages": [user(text), {"role": "root", "content": "x"}]}),
    "anthropic block": (ANTHROPIC, lambda text: {"max_tokens": 5, "messages": [user(text), user([{"type": "image"}])]}),  # type: ignore[arg-type]
    "responses role": (RESPONSES, lambda text: {"input": [user(text), {"role": "root", "content": "x"}]}),
    "responses previous": (RESPONSES, lambda text: {"input": text, "previous_response_id": "resp_x"}),
    "counted": (COUNT, lambda text: {"max_tokens": 5, "messages": [user(text)]}),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_nothing_is_kept_of_a_request_that_records_no_call(kind: str) -> None:
    gateway = make()
    episode = gateway.open(budget=CallBudget(calls=3))
    path, body = REFUSED[kind]
    for number in range(4):
        answer = await send(gateway, episode, path, body(f"{number}" + "x" * 10_000))
        assert (answer.status == 200) == (kind == "counted")
    assert gateway.memory.held == episode.record.memory.held == 0
    assert not any(episode.record._pieces.values())
    await gateway.close(episode)


async def test_a_call_that_the_context_or_the_engine_refuses_leaves_nothing() -> None:
    engine = ScriptedEngine(write)
    engine.context_length = 100
    gateway = Gateway(engine, lambda tools: Letters())
    episode = gateway.open()
    for number in range(5):
        answer = await send(gateway, episode, CHAT, {"messages": [user(f"{number}{part}" * 20) for part in range(20)]})
        assert b"context_length_exceeded" in answer.body
    assert gateway.memory.held == 0
    graph = episode.record._graph
    assert not graph._root.children
    await gateway.close(episode)


async def test_what_an_episode_keeps_is_bounded_and_given_back_at_its_end() -> None:
    gateway = make(limits=GatewayLimits(memory=MEGABYTE, total_memory=3 * MEGABYTE // 2))
    first, second = gateway.open(), gateway.open()

    async def fill(episode: OpenEpisode) -> Response:
        for number in range(200):
            answer = await send(gateway, episode, CHAT, {"messages": [user(f"{number} " + "x" * 1000)], "max_tokens": 8})
            if answer.status != 200:
                return answer
        raise AssertionError("nothing was refused")

    refused = await fill(first)
    assert refused.status == 413
    assert b"GatewayLimits.memory" in refused.body
    assert 0.5 * MEGABYTE < first.record.memory.held <= MEGABYTE
    refused = await fill(second)
    assert refused.status == 503
    assert b"GatewayLimits.total_memory" in refused.body
    assert gateway.memory.held <= 1.5 * MEGABYTE
    assert len((await gateway.close(first)).calls) > 10
    assert (await send(gateway, second, CHAT, {"messages": [user("again")], "max_tokens": 8})).status == 200
    await gateway.close(second)
    assert gateway.memory.held == 0


async def test_calls_whose_clients_went_away_count_as_pending() -> None:
    gateway = make(limits=GatewayLimits(pending=3))
    await gateway.engine.pause()
    episode = gateway.open()
    for number in range(3):
        asking = asyncio.ensure_future(send(gateway, episode, CHAT, {"messages": [user(f"{number}")]}))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait([asking])
    refused = await send(gateway, episode, CHAT, {"messages": [user("more")]})
    assert (refused.status, b"GatewayLimits.pending" in refused.body) == (429, True)
    await gateway.close(episode)
    assert gateway.memory.held == 0


MANY: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "messages": (CHAT, lambda n: json.dumps({"messages": [user(f"{at}") for at in range(n)]}).encode()),
    "objects": (CHAT, lambda n: b'{"messages": [' + b",".join([b"{}"] * n) + b"]}"),
    "numbers": (CHAT, lambda n: b'{"messages": [' + b",".join([b"0"] * n) + b"]}"),
    "parts": (CHAT, lambda n: json.dumps({"messages": [user([{"type": "text"}] * n)]}).encode()),  # type: ignore[arg-type]
    "nested lists": (CHAT, lambda n: b'{"messages": [], "tool_choice": [' + b",".join([b"[]"] * n) + b"]}"),
    "stop strings": (CHAT, lambda n: json.dumps({"messages": [user("x")], "stop": ["a"] * n}).encode()),
    "calls": (
        RESPONSES,
        lambda n: json.dumps({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}] * n}).encode(),
    ),
    "tools": (CHAT, lambda n: json.dumps({"messages": [user("x")], "tools": [{"type": "function"}] * n}).encode()),
    "blocks": (ANTHROPIC, lambda n: json.dumps({"messages": [user([{"type": "tool_result"}] * n)]}).encode()),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", MANY)
async def test_a_request_of_many_small_parts_is_refused_before_it_holds_the_loop(kind: str) -> None:
    gateway = make()
    episode = gateway.open()
    path, body = MANY[kind]
    data = body(60_000)
    assert len(data) <= gateway.limits.body

    async def longest_hold() -> float:
        """CPU seconds of the longest step of the event loop."""
        sending = asyncio.ensure_future(send(gateway, episode, path, data))
        longest = 0.0
        while not sending.done():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
        answer = sending.result()
        assert answer.status == 413
        assert b"GatewayLimits." in answer.body
        return longest

    assert min([await longest_hold() for _ in range(3)]) < 0.05
    assert gateway.memory.held == 0
    await gateway.close(episode)


async def test_a_long_reply_of_joined_calls_takes_time_in_proportion() -> None:
    engine = ScriptedEngine(write)
    engine.context_length = 10**7
    gateway = Gateway(engine, lambda tools: Letters())
    episode = gateway.open()

    async def seconds(count: int) -> float:
        calls = [{"type": "function_call", "name": "f", "call_id": f"{at}", "arguments": "{}"} for at in range(count)]
        began = time.thread_time()
        assert (await send(gateway, episode, RESPONSES, {"input": [user("x"), *calls, user("y")]})).status == 200
        return time.thread_time() - began

    small, large = [min([await seconds(count + at) for at in range(3)]) for count in (400, 3200)]
    assert large < 24 * small + 0.01  # in proportion it is 8 times as much; with the square of the length 64 times
    await gateway.close(episode)


@pytest.mark.parametrize("strings", [0, 3000])
async def test_punctuation_inside_of_strings_is_no_structure(strings: int) -> None:
    engine = ScriptedEngine(write)
    engine.context_length = 10**6
    gateway = Gateway(engine, lambda tools: Letters())
    episode = gateway.open()
    body = {"messages": [user('[{,}] \\" ' * 20_000), *[user("{,")] * strings]}
    assert (await send(gateway, episode, CHAT, body)).status == 200
    await gateway.close(episode)


@pytest.mark.parametrize("rest", [b"1", b" ", b"\\", b"a]}"])
async def test_counting_takes_time_in_proportion_to_what_follows_the_last_mark(rest: bytes) -> None:
    began = time.thread_time()
    await check_values(b'"' + b"," * 50_001 + b'"' + rest * 30_000, 50_000)
    assert time.thread_time() - began < 0.5  # milliseconds in proportion, seconds with the square of the length


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("n", 0, 400),
        ("n", -1, 400),
        ("n", 1, 200),
        ("temperature", -1, 400),
        ("top_p", 1.5, 400),
        ("top_k", -3, 400),
        ("top_k", -1, 200),
        ("max_tokens", 0, 400),
        ("max_completion_tokens", -5, 400),
        ("max_tokens", 1, 200),
    ],
)
async def test_parameters_outside_of_their_range_are_refused(name: str, value: float, status: int) -> None:
    gateway = make()
    episode = gateway.open()
    answer = await send(gateway, episode, CHAT, {"messages": [user("x")], name: value})
    assert answer.status == status
    assert status == 200 or str(value).encode() in answer.body
    await gateway.close(episode)
