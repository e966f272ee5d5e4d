"""Who may call what, limits, what is kept, metrics, and the socket."""

import asyncio
import json
import re
import threading
import urllib.request
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest
from tests.agents.driving import ADD, Agent, Client, Response, events_of, post
from tests.hoarding import raw

from palestra.agents import CallBudget, Capture, Gateway, GatewayLimits, OpenEpisode, SamplingRule, Upstream, probe
from palestra.agents.anthropic import ANTHROPIC
from palestra.agents.capture import require
from palestra.agents.messages import Pieces, rendered
from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints, floats, ints
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import Finish, Message, Tokens

STOP = 0


def write(prompt: Ints, sampling: Sampling) -> list[int]:
    return [*map(ord, f"r{len(prompt)}"), STOP]


def make(**options: Any) -> Gateway:
    return Gateway(ScriptedEngine(write), lambda tools: ByteRenderer(), **options)


def agent(gateway: Gateway, episode: OpenEpisode, text: str = "Hello") -> Agent:
    caller = Agent(gateway, episode, "chat")
    caller.user(text)
    return caller


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models"])
async def test_a_key_cannot_reach_another_episode(path: str) -> None:
    gateway = make()
    first, second = gateway.open(), gateway.open()
    for headers in (
        {},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {first.key}", "x-api-key": second.key},
        {"authorization": f"Bearer {first.key[:-1]}"},
        {"authorization": f"Bearer {first.key} {second.key}"},
        {"authorization": "Bearer a"},
    ):
        response = await post(gateway, path, b"" if "models" in path else b"{}", headers)
        assert response.status in (401, 403), headers
        assert first.key.encode() not in response.body
    assert (await gateway.close(first)).calls == ()
    assert (await gateway.close(second)).calls == ()


async def test_another_episode_s_answer_cannot_be_continued() -> None:
    gateway = make()
    first, second = gateway.open(), gateway.open()
    mine = Agent(gateway, first, "responses")
    mine.user("A secret")
    answer = await mine.ask()
    other = Agent(gateway, second, "responses", extra={"previous_response_id": answer.id})
    other.user("What is the secret?")
    assert (await other.send()).status == 404
    same = Agent(gateway, first, "responses", system=mine.system, extra={"previous_response_id": answer.id})
    same.user("Next")
    await same.ask()
    assert (await gateway.close(first)).links == {"start": 1, "extended": 1}


async def test_a_sealed_episode_answers_without_sampling_and_a_closed_one_refuses_its_key() -> None:
    gateway = make()
    episode = gateway.open()
    assert (await episode.record.seal()).calls == ()
    assert (await agent(gateway, episode).ask()).text == "The episode has ended."
    await gateway.close(episode)
    assert (await agent(gateway, episode).send()).status == 401
    assert len(gateway) == 0


async def test_sealing_cancels_what_is_being_sampled() -> None:
    gateway = make()
    await gateway.engine.pause()
    episode = gateway.open()
    asking = asyncio.ensure_future(agent(gateway, episode).send())
    await asyncio.sleep(0.01)
    recording = await gateway.close(episode)
    assert (await asking).status == 409
    assert (recording.calls, recording.links) == ((), {})
    assert gateway.memory.held == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"nonsense", 400),
        (b"[" * 100_000, 413),
        (b"{}", 400),
        (b'{"messages": []}', 400),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400),
        (b'{"messages": [{"role": "user", "content": "' + b"x" * 5000 + b'"}]}', 413),
    ],
)
async def test_bad_bodies_are_refused_and_harm_nothing(body: bytes, status: int) -> None:
    gateway = make(limits=GatewayLimits(body=4096) if status == 413 else None)
    episode = gateway.open()
    caller = agent(gateway, episode)
    assert (await caller.send(body or b" ")).status == status
    assert (await caller.send()).status == 200


async def test_too_many_requests_at_once_are_refused() -> None:
    gateway = make(limits=GatewayLimits(pending=2))
    await gateway.engine.pause()
    episode = gateway.open()
    asking = [asyncio.ensure_future(agent(gateway, episode, text).send()) for text in "abc"]
    assert (await asking[2]).status == 429
    await gateway.engine.resume()
    assert [(await answer).status for answer in asking[:2]] == [200, 200]


async def test_models_and_counts_are_answered_and_not_recorded() -> None:
    gateway = make(model="mine")
    episode = gateway.open()
    caller = Agent(gateway, episode, "anthropic")
    caller.user("Hello")
    models = await post(gateway, "/v1/models", b"", {"x-api-key": episode.key})
    assert models.json["data"][0]["id"] == "mine"
    counted = await post(gateway, "/v1/messages/count_tokens", caller.body(), caller.auth())
    request = await ANTHROPIC.read(caller.body(), Pieces())
    assert counted.json == {"input_tokens": len(ByteRenderer().first(rendered(request)))}
    assert (await post(gateway, "/v1/embeddings", b"{}", {"x-api-key": episode.key})).status == 404
    assert (await gateway.close(episode)).calls == ()


async def test_episodes_that_offer_the_same_tools_at_once_wait_for_one_renderer() -> None:
    tried: list[Any] = []
    begun, go_on = threading.Event(), threading.Event()

    def renderers(tools: Any) -> ByteRenderer:
        tried.append(tools)
        begun.set()
        assert go_on.wait(10)
        if len(tried) == 1:
            raise ValueError("the template refuses the first try")
        return ByteRenderer()

    gateway = Gateway(ScriptedEngine(write), renderers)
    episodes = [gateway.open() for _ in range(4)]
    for expected in (ValueError, None, None):
        asking = [asyncio.ensure_future(agent(gateway, episode).ask()) for episode in episodes]
        await asyncio.to_thread(begun.wait, 10)
        go_on.set()
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(answer, BaseException) == bool(expected) for answer in answers), answers
    assert len(tried) == 2


class Watched(ByteRenderer):
    """Notes the threads in which prompts are rendered."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def first(self, messages: Sequence[Message]) -> Ints:
        self.threads.add(threading.current_thread())
        return super().first(messages)


def ask_and_wait(episode: OpenEpisode, text: str, tool: str) -> int:
    """Make a call as agents do that block: the thread waits for the answer."""
    tools = [{"type": "function", "function": {**ADD, "name": tool}}]
    body = json.dumps({"messages": [{"role": "user", "content": text}], "tools": tools}).encode()
    headers = {"authorization": f"Bearer {episode.key}"}
    request = urllib.request.Request(f"{episode.openai_url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return int(response.status)


@pytest.mark.parametrize(
    ("length", "tools"), [(40_000, 1), (1, 8)], ids=["long prompts are rendered", "renderers for new tools are made"]
)
async def test_agents_that_fill_the_loop_s_own_threads_are_answered(length: int, tools: int) -> None:
    renderer = Watched()
    gateway = Gateway(ScriptedEngine(write), renderer.with_tools)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    async with gateway.serving():
        episodes = [gateway.open() for _ in range(8)]
        assert await asyncio.to_thread(ask_and_wait, episodes[0], "Hello", "tool0") == 200
        asking = [
            asyncio.to_thread(ask_and_wait, episode, "x" * length, f"tool{number % tools}")
            for number, episode in enumerate(episodes)
        ]
        assert await asyncio.gather(*asking) == [200] * 8
        for episode in episodes:
            await gateway.close(episode)
    rendering = renderer.threads - {threading.current_thread()}
    assert bool(rendering) == (length > 1)
    assert len(rendering) <= 4
    for thread in rendering:  # they end with the server
        thread.join(10)
        assert not thread.is_alive()


async def test_a_long_episode_ends_while_agents_fill_the_loop_s_own_threads() -> None:
    gateway = make()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    over = threading.Event()
    episode = gateway.open()
    await agent(gateway, episode, "x" * 40_000).ask()
    blocking = asyncio.get_running_loop().run_in_executor(None, over.wait, 20)
    try:
        async with asyncio.timeout(10):
            assert len((await gateway.close(episode)).calls) == 1
    finally:
        over.set()
        await blocking


async def test_parameters_without_effect_are_counted() -> None:
    gateway = make()
    episode = gateway.open()
    caller = agent(gateway, episode)
    caller.extra = {"logit_bias": {"5": 1}, "response_format": {"type": "json_object"}, "tool_choice": "required", "seed": 4}
    await caller.ask()
    assert (await gateway.close(episode)).ignored == {"logit_bias": 1, "response_format": 1, "tool_choice": 1}


async def test_stop_strings_are_left_out_and_both_forms_continue() -> None:
    for form in ("r", "r3"):
        gateway = Gateway(ScriptedEngine(lambda prompt, sampling: [*map(ord, "r3"), STOP]), lambda tools: ByteRenderer())
        episode = gateway.open()
        caller = Agent(gateway, episode, "anthropic", extra={"stop_sequences": ["3"]})
        caller.user("Count")
        answer = await caller.ask()
        assert (answer.text, answer.finish) == ("r", "stop_sequence")
        caller.history.append({"role": "assistant", "content": form})
        caller.user("Next")
        await caller.ask()
        assert (await gateway.close(episode)).links == {"start": 1, "extended": 1}


@pytest.mark.parametrize("stops", [[], ["3"]])
async def test_a_stream_names_the_stop_sequence_only_if_there_was_one(stops: list[str]) -> None:
    gateway = Gateway(ScriptedEngine(lambda prompt, sampling: [*map(ord, "r3"), STOP]), lambda tools: ByteRenderer())
    caller = Agent(gateway, gateway.open(), "anthropic", stream=True, extra={"stop_sequences": stops})
    caller.user("Count")
    ends = [data["delta"] for name, data in events_of((await caller.send()).body) if name == "message_delta"]
    assert [end["stop_sequence"] for end in ends] == [*stops, None][:1]


async def test_the_renderers_of_sixteen_sets_of_tools_are_kept_and_the_one_used_least_recently_is_made_again() -> None:
    made: list[str] = []

    def renderers(tools: Any) -> ByteRenderer:
        made.append(tools[0]["function"]["name"])
        return ByteRenderer()

    gateway = Gateway(ScriptedEngine(write), renderers)
    episode = gateway.open()
    for turn, number in enumerate((*range(16), 0, 16, 0, 2, 1)):
        caller = agent(gateway, episode, f"Hello {turn}")
        caller.tools = ({**ADD, "name": f"add{number}"},)
        await caller.ask()
    assert made == [f"add{number}" for number in (*range(16), 16, 1)]


def test_defaults() -> None:
    limits = (4 << 20, 30.0, 60.0, 10.0, 64, 50_000, 4096, 1 << 18, 10_000, 128 << 20, 4096 << 20, 10_000, 60.0)
    assert GatewayLimits() == GatewayLimits(*limits)
    there = Upstream("m", "http://here")
    assert (there.key_variable, there.prompt_price, there.completion_price) == ("OPENAI_API_KEY", 0.0, 0.0)
    assert (there.timeout, there.attempts, there.first_pause) == (300.0, 4, 0.5)
    assert SamplingRule().honor is False
    assert CallBudget() == CallBudget(None, None, None)


@pytest.mark.parametrize(
    ("tokens", "level"),
    [
        (([1], [-0.5]), Capture.LOGPROBS),
        (([1, 2], [0.0, -0.5]), Capture.LOGPROBS),
        (([1, 2], [0.0, 0.0]), Capture.TOKENS),
        (([1, 2], [float("nan"), -0.5]), Capture.TOKENS),
        (([], []), Capture.TEXT),
        (None, Capture.TEXT),
    ],
)
async def test_the_probe_believes_what_it_sees(tokens: Any, level: Capture) -> None:
    class Engine(ScriptedEngine):
        async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
            ids, logprobs = tokens or ([1], [-0.5])
            prompt = prompt if tokens else ints([*prompt, 1])  # another prompt than was asked for
            return Generation(Tokens(prompt, ints(ids), floats(logprobs)), Finish.STOP)

    assert await probe(Engine(write), ByteRenderer()) is level


async def test_text_alone_cannot_be_trained() -> None:
    assert await probe(None, ByteRenderer()) is Capture.TEXT
    require(Capture.TOKENS)
    with pytest.raises(UsageError, match="captures text"):
        require(Capture.TEXT)


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    gateway = make(limits=GatewayLimits(body=100_000, read_seconds=0.3, write_seconds=0.3))
    async with gateway.serving():
        yield gateway


async def test_the_gateway_is_served_over_http(served: Gateway) -> None:
    other, episode = served.open(), served.open(budget=CallBudget(calls=5))
    assert episode.openai_url == other.openai_url == f"{served.url}/v1"  # clients can share connections
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
    headers = {"Authorization": f"Bearer {episode.key}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{episode.openai_url}/models") as answer:
            assert answer.status == 200
        async with session.post(f"{episode.openai_url}/chat/completions", json=body) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert (await answer.read()).endswith(b"data: [DONE]\n\n")
        async with session.post(f"{episode.anthropic_url}/v1/messages", json={**body, "stream": False}) as answer:
            assert (await answer.json())["type"] == "message"
    recording = await served.close(episode)
    assert [str(call.role) for call in recording.calls] == ["discarded", "agent"]  # the same messages, asked for twice
    assert (await served.close(other)).calls == ()


@pytest.mark.parametrize(("body", "length", "status"), [(b"{", 1000, b" 408 "), (b"x" * 120_000, 120_000, b" 413 ")])
async def test_a_body_that_does_not_arrive_or_is_too_long_is_refused(
    served: Gateway, body: bytes, length: int, status: bytes
) -> None:
    episode = served.open()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {episode.key}\r\nContent-Length: {length}"
    async with raw(served.url) as (reader, writer), asyncio.timeout(20):
        writer.write(f"{head}\r\n\r\n".encode() + body)
        assert status in (await reader.read(65536)).partition(b"\r\n")[0]
    assert (await served.close(episode)).calls == ()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_stalls_is_given_up_and_its_reply_can_be_fetched_again(stream: bool) -> None:
    gateway = make(limits=GatewayLimits(write_seconds=0.05))
    again, lost = gateway.open(), gateway.open()
    for episode in (again, lost):
        caller = agent(gateway, episode)
        caller.stream = stream
        stalled = await asyncio.wait_for(caller.send(client=Client(slow=3600)), 10)
        assert stalled.body == b""
        if episode is again:
            await caller.ask()
    assert [str(call.role) for call in (await gateway.close(again)).calls] == ["agent"]
    assert [str(call.role) for call in (await gateway.close(lost)).calls] == ["discarded"]


async def test_an_agent_that_asks_on_after_its_budget_fills_no_memory() -> None:
    gateway = make()
    episode = gateway.open(budget=CallBudget(calls=1))
    await agent(gateway, episode).ask()
    await agent(gateway, episode, "again").ask()  # the first refusal
    before = episode.record.memory.held
    for number in range(50):
        caller = agent(gateway, episode, f"more {number}")
        caller.extra = {"user": f"user {number}"}
        assert "budget" in (await caller.ask()).text
    assert episode.record.memory.held == before
    assert (await gateway.close(episode)).refused == 51


async def test_the_metrics_have_a_key_of_their_own() -> None:
    async def scraped(gateway: Gateway, key: str) -> Response:
        return await post(gateway, "/metrics", b"", {"authorization": f"Bearer {key}"})

    gateway = make(metrics_key="seen by Prometheus")
    episode = gateway.open()
    await agent(gateway, episode).ask()
    await gateway.close(episode)
    open_one = gateway.open()
    assert (await post(gateway, "/anything", b"", {})).status == 401
    assert [(await scraped(gateway, key)).status for key in (episode.key, open_one.key, "")] == [401] * 3
    assert (await scraped(make(), "")).status == 401  # without a key there are no metrics
    told = await scraped(gateway, "seen by Prometheus")
    lines = told.body.decode().splitlines()
    assert told.status == 200
    assert "palestra_gateway_episodes 1" in lines
    assert "palestra_gateway_episodes_opened_total 2" in lines
    assert 'palestra_gateway_answers_total{path="/v1/chat/completions",status="200"} 1' in lines
    assert 'palestra_gateway_answers_total{path="other",status="401"} 1' in lines
    assert any(re.fullmatch(r'palestra_gateway_tokens_total\{kind="sampled"\} [1-9]\d*', line) for line in lines)
    assert "palestra_gateway_answer_seconds_count 2" in lines


class Failing(ScriptedEngine):
    """Fails only after the gateway has begun to answer."""

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        await asyncio.sleep(0.1)
        raise InfrastructureError("the server is down")


async def test_the_metrics_count_a_stream_that_fails_late_as_failed() -> None:
    gateway = Gateway(Failing(write), lambda tools: ByteRenderer(), limits=GatewayLimits(ping_seconds=0.01))
    caller = Agent(gateway, gateway.open(), "chat", stream=True)
    caller.user("Hello")
    answer = await caller.send()
    assert answer.status == 200
    assert b"event: error" in answer.body
    assert 'palestra_gateway_answers_total{path="/v1/chat/completions",status="500"} 1' in gateway.metrics.text(1)


async def test_the_metrics_count_a_client_that_went_away() -> None:
    gateway = make()
    await agent(gateway, gateway.open()).send(client=Client(disconnect_after=0.0))
    while 'status="' not in (text := gateway.metrics.text(1)):
        await asyncio.sleep(0.01)
    assert 'palestra_gateway_answers_total{path="/v1/chat/completions",status="499"} 1' in text
