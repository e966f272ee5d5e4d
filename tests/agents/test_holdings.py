"""What the requests of one key make the gateway keep, and how long they hold the event loop."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.driving import Response, post
from tests.agents.test_gateway import make, write

from palestra.agents import CallBudget, Gateway, GatewayLimits, OpenEpisode, exchange
from palestra.agents.messages import BadRequest
from palestra.foundation.encoding import Ints
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import Message

MEGABYTE = 2**20
CHAT, ANTHROPIC, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
COUNT = f"{ANTHROPIC}/count_tokens"


def user(text: Any) -> dict[str, Any]:
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
    "anthropic block": (ANTHROPIC, lambda text: {"max_tokens": 5, "messages": [user(text), user([{"type": "image"}])]}),
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
        assert answer.status == {"counted": 200, "responses previous": 404}.get(kind, 400), answer.body
    assert gateway.memory.held == episode.record.memory.held == 0
    assert not any(episode.record._pieces.values())


async def test_a_call_that_the_context_or_the_engine_refuses_leaves_nothing() -> None:
    gateway = Gateway(ScriptedEngine(write, context_length=100), ByteRenderer().with_tools)
    episode = gateway.open()
    for number in range(5):
        answer = await send(gateway, episode, CHAT, {"messages": [user(f"{number}{part}" * 20) for part in range(20)]})
        assert b"context_length_exceeded" in answer.body
    assert gateway.memory.held == 0
    graph = episode.record._graph
    assert not graph._root.children


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


MANY: dict[str, tuple[str, int, Callable[[int], Any]]] = {
    "messages": (CHAT, 60_000, lambda n: {"messages": [user(f"{at}") for at in range(n)]}),
    "objects": (CHAT, 60_000, lambda n: {"messages": [{}] * n}),
    "numbers": (CHAT, 60_000, lambda n: {"messages": [0] * n}),
    "parts": (CHAT, 60_000, lambda n: {"messages": [user([{"type": "text"}] * n)]}),
    "nested lists": (CHAT, 60_000, lambda n: {"messages": [], "tool_choice": [[]] * n}),
    "stop strings": (CHAT, 60_000, lambda n: {"messages": [user("x")], "stop": ["a"] * n}),
    "calls": (RESPONSES, 60_000, lambda n: {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}] * n}),
    "calls of a message": (
        CHAT,
        12_000,
        lambda n: {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * n}, user("x")]},
    ),
    "calls in blocks": (
        ANTHROPIC,
        8_000,
        lambda n: {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}] * n}]},
    ),
    "results in blocks": (ANTHROPIC, 12_000, lambda n: {"messages": [user([{"type": "tool_result"}] * n)]}),
    "tools": (CHAT, 60_000, lambda n: {"messages": [user("x")], "tools": [{"type": "function"}] * n}),
    "blocks": (ANTHROPIC, 60_000, lambda n: {"messages": [user([{"type": "tool_result"}] * n)]}),
}


async def longest_hold(running: Coroutine[Any, Any, Any]) -> float:
    """Return the CPU seconds of the longest step of the event loop while ``running`` runs."""
    task = asyncio.ensure_future(running)
    longest = 0.0
    while not task.done():
        began = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - began)
    task.result()
    return longest


@pytest.mark.parametrize("kind", MANY)
async def test_a_request_of_many_small_parts_is_refused_before_it_holds_the_loop(kind: str) -> None:
    gateway = make()
    episode = gateway.open()
    path, count, body = MANY[kind]
    data = json.dumps(body(count)).encode()
    assert len(data) <= gateway.limits.body

    async def refused() -> None:
        answer = await send(gateway, episode, path, data)
        assert answer.status == 413
        assert b"GatewayLimits." in answer.body

    assert min([await longest_hold(refused()) for _ in range(3)]) < 0.05
    assert gateway.memory.held == 0


@pytest.mark.parametrize("size", [0, 2_000_000])
async def test_long_prompts_and_calls_are_rendered_outside_of_the_loop_s_thread(size: int) -> None:
    threads: set[int] = set()

    class Watched(ByteRenderer):
        def first(self, messages: Sequence[Message]) -> Ints:
            threads.add(threading.get_ident())
            return super().first(messages)

    gateway = Gateway(ScriptedEngine(write, context_length=10**7), Watched().with_tools)
    episode = gateway.open()
    call = {"function": {"name": "f", "arguments": "x" * size}}
    messages = [user("x"), {"role": "assistant", "tool_calls": [call]}, user("y")]
    assert (await send(gateway, episode, CHAT, {"messages": messages})).status == 200
    assert (threads == {threading.get_ident()}) == (size == 0)


async def test_a_long_reply_of_joined_calls_takes_time_in_proportion() -> None:
    gateway = Gateway(ScriptedEngine(write, context_length=10**7), ByteRenderer().with_tools)
    episode = gateway.open()

    async def seconds(count: int) -> float:
        calls = [{"type": "function_call", "name": "f", "call_id": f"{at}", "arguments": "{}"} for at in range(count)]
        began = time.thread_time()
        assert (await send(gateway, episode, RESPONSES, {"input": [user("x"), *calls, user("y")]})).status == 200
        return time.thread_time() - began

    small, large = [min([await seconds(count + at) for at in range(3)]) for count in (400, 3200)]
    assert large < 24 * small + 0.01  # in proportion it is 8 times as much; with the square of the length 64 times


TEXTS = st.lists(st.sampled_from([rb"\\", rb"\"", rb"\n", b",", b"[", b"{", b"a"])).map(
    lambda parts: b'"' + b"".join(parts) + b'"'
)
JSON = st.lists(st.one_of(st.sampled_from([b",", b"[", b"{", b"1"]), TEXTS)).map(b"".join)


def counted(data: bytes) -> tuple[int, int]:
    """Count the marks of structure outside of strings, and the quotes that begin and end strings, byte by byte."""
    marks = quotes = 0
    escaped = False
    for byte in data:
        if quotes % 2 and not escaped and byte == ord("\\"):
            escaped = True
            continue
        if byte == ord('"') and not escaped:
            quotes += 1
        elif not quotes % 2:
            marks += byte in b"[{,"
        escaped = False
    return marks, quotes


@given(data=JSON, end=st.integers(0, 3), part=st.integers(1, 7))
async def test_values_are_counted_as_a_reader_of_every_byte_counts_them(data: bytes, end: int, part: int) -> None:
    data = data[: len(data) - end]
    marks, quotes = counted(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_PART", part)
        for most in range(max(marks - 1, 0), marks + 2):
            everywhere = sum(byte in b"[{," for byte in data)
            too_many = marks > most or (everywhere > most and quotes > 4 * most + 2)
            with pytest.raises(BadRequest, match=r"GatewayLimits\.values") if too_many else contextlib.nullcontext():
                await exchange.check_values(data, most)


@pytest.mark.parametrize("rest", [b"x", b"\\", b'\\"', b'""'])
async def test_counting_values_does_not_hold_the_loop(rest: bytes) -> None:
    data = b'"' + b"," * 50_001 + rest * (4_000_000 // len(rest))
    with contextlib.suppress(BadRequest):
        assert await longest_hold(exchange.check_values(data, 50_000)) < 0.05


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
