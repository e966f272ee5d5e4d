"""Calls that are passed on to another API. The API is a second gateway, in all its dialects."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiohttp import web
from tests.agents import programs
from tests.agents.driving import Agent, Response, post
from tests.agents.test_program import guess, in_order, play
from tests.answering import answering

from palestra.agents import CallBudget, Gateway, OpenEpisode, Program, Recording, Upstream
from palestra.agents.episode import EpisodeCosts
from palestra.errors import PolicyError
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import StopReason, Usage

KEY = "UPSTREAM_TEST_KEY"


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Gateway, OpenEpisode]]:
    """A gateway that samples, as the API of the other one."""
    gateway = Gateway(ScriptedEngine(guess), lambda tools: ByteRenderer(), model="gpt-x")
    async with gateway.serving():
        episode = gateway.open()
        monkeypatch.setenv(KEY, episode.key)
        yield gateway, episode


def upstream(episode: OpenEpisode, **options: Any) -> Upstream:
    return Upstream("gpt-x", episode.openai_url, KEY, prompt_price=1e6, completion_price=2e6, first_pause=0.0, **options)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_every_dialect_is_passed_on_and_recorded_as_text(
    api: tuple[Gateway, OpenEpisode], dialect: Any, stream: bool
) -> None:
    far, there = api
    gateway = Gateway(upstream(there))
    episode = gateway.open()
    caller = Agent(gateway, episode, dialect, stream=stream)
    caller.user("Hello")
    for _ in range(2):
        answer = await caller.ask()
        caller.history += answer.native
        caller.user("Next")
    assert [(await caller.send(caller.body())).status for _ in "ab"] == [200, 200]
    recording, sampled = await gateway.close(episode), await far.close(there)
    counted, expected = ([(call.text, call.prompt_tokens, call.tokens) for call in some.calls] for some in (recording, sampled))
    assert counted == expected
    assert (len(recording.calls), recording.replayed, recording.merged, recording.segments) == (3, 1, 1.0, {})
    assert episode.record.costs.dollars == sum(call.prompt_tokens + 2.0 * call.tokens for call in recording.calls)


async def test_the_api_s_host_is_looked_up_while_agents_fill_the_loop_s_own_threads(api: tuple[Gateway, OpenEpisode]) -> None:
    _, there = api
    by_name = Upstream("gpt-x", there.openai_url.replace("127.0.0.1", "localhost"), KEY, attempts=1)
    gateway = Gateway(by_name)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    over = threading.Event()
    blocking = asyncio.get_running_loop().run_in_executor(None, over.wait, 20)
    caller = Agent(gateway, gateway.open(), "chat")
    caller.user("Hello")
    try:
        async with asyncio.timeout(10):
            assert (await caller.send()).status == 200
    finally:
        over.set()
        await blocking


async def test_the_same_agent_plays_with_weights_and_with_an_api(api: tuple[Gateway, OpenEpisode]) -> None:
    _, there = api
    sampled = await play(Program(programs.stepping, ScriptedEngine(guess), ByteRenderer()), n=3)
    passed = await play(Program(programs.stepping, upstream(there)), n=3)
    for direct, forwarded in zip(in_order(sampled), in_order(passed), strict=True):
        assert [turn.action for turn in direct.turns] == [turn.action for turn in forwarded.turns]
        assert (direct.reward, direct.stop) == (forwarded.reward, forwarded.stop)
        assert not forwarded.segments
        for turn, counted in zip(forwarded.turns, (turn.completion.usage for turn in direct.turns), strict=True):
            assert counted is not None
            dollars = counted.prompt_tokens + 2.0 * counted.completion_tokens
            assert turn.completion.usage == Usage(counted.prompt_tokens, counted.completion_tokens, dollars)


async def test_a_budget_of_dollars_ends_the_calls(api: tuple[Gateway, OpenEpisode]) -> None:
    far, there = api
    gateway = Gateway(upstream(there))
    episode = gateway.open(budget=CallBudget(dollars=1.0))
    caller = Agent(gateway, episode, "chat")
    caller.user("Hello")
    await caller.ask()
    caller.user("More")
    assert "budget" in (await caller.ask()).text
    assert (await gateway.close(episode)).refused == 1
    assert len((await far.close(there)).calls) == 1


async def test_a_refused_key_is_the_policy_s_failure_and_is_not_shown(
    api: tuple[Gateway, OpenEpisode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "not-the-key-of-this-api")
    (trajectory,) = await play(Program(programs.stepping, upstream(api[1])), n=1)
    assert (trajectory.stop, trajectory.reward) == (StopReason.ERROR, None)
    assert (trajectory.failures[0].boundary, "401" in trajectory.failures[0].message) == ("policy", True)
    assert "not-the-key-of-this-api" not in str(trajectory)


async def test_an_api_that_fails_is_asked_again_and_its_words_hide_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "a-long-secret-key")
    asked: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.json())
        if len(asked) < 3:
            return web.Response(status=503, text=f"busy, {request.headers['Authorization']}")
        return web.Response(status=400, text=f"no good, {request.headers['Authorization']}")

    episode, recording, refused = await _asked(answer)
    assert refused.status == 400
    assert b"no good" in refused.body
    assert b"a-long-secret-key" not in refused.body
    assert (len(asked), asked[0]["model"]) == (3, "gpt-x")
    assert episode.key not in str(asked)
    assert recording.calls == ()


async def _asked(answer: Any) -> tuple[OpenEpisode, Recording, Response]:
    """Ask an API that answers with ``answer``: a handler or a body. Return episode, recording and the agent's answer."""

    async def body(request: web.Request) -> web.Response:
        return web.json_response(answer)

    async with answering(answer if callable(answer) else body) as url:
        gateway = Gateway(Upstream("gpt-x", f"{url}/v1", KEY, prompt_price=1e6, first_pause=0.0))
        episode = gateway.open()
        caller = Agent(gateway, episode, "chat")
        caller.user("Hello")
        response = await caller.send()
        return episode, await gateway.close(episode), response


def _chat(content: Any = "Hi", **usage: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "choices": [choice], "usage": usage}


@pytest.mark.parametrize(
    "body",
    [
        _chat(prompt_tokens=-1_000_000_000, completion_tokens=1),
        _chat(prompt_tokens="7"),
        _chat(prompt_tokens=1.5),
        _chat(completion_tokens=True),
        _chat(prompt_tokens=2**80),
        _chat(content=[{"type": "text", "text": "Hi"}]),
        {**_chat(), "created": "yesterday"},
    ],
)
async def test_an_answer_that_is_not_one_of_the_api_is_the_policy_s_failure(body: Any) -> None:
    episode, recording, response = await _asked(body)
    record = episode.record
    assert response.status == 500
    assert isinstance(record.failure, PolicyError)
    assert (record.costs, recording.calls) == (EpisodeCosts(), ())


async def test_an_api_that_does_not_count_tokens_is_recorded_with_none() -> None:
    episode, recording, response = await _asked(_chat(prompt_tokens=None))
    assert (response.status, episode.record.costs.prompt_tokens, len(recording.calls)) == (200, 0, 1)


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.agents.upstream._MOST_BYTES", 1000, raising=False)
    episode, _, response = await _asked(_chat("x" * 2000))
    assert response.status == 500
    assert "more than 1000 bytes" in str(episode.record.failure)


async def test_no_part_of_the_key_stays_where_an_error_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-secret-0123456789")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=400, text="x" * 285 + request.headers["x-api-key"])

    _, _, refused = await _asked(answer)
    assert refused.status == 400
    assert b"sk-secret" not in refused.body


async def test_the_key_does_not_follow_a_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "a-long-secret-key")
    elsewhere: list[str] = []

    async def take(request: web.Request) -> web.Response:
        elsewhere.append(request.headers.get("x-api-key", ""))
        return web.json_response(_chat())

    async with answering(take) as other:

        async def redirect(request: web.Request) -> web.Response:
            return web.Response(status=307, headers={"Location": f"{other}/v1/chat/completions"})

        episode, _, response = await _asked(redirect)
    assert response.status == 500
    assert isinstance(episode.record.failure, PolicyError)
    assert "307" in str(episode.record.failure)
    assert elsewhere == []


async def test_tokens_are_not_counted_after_the_end_and_an_api_that_is_away_is_answered() -> None:
    away = Gateway(Upstream("gpt-x", "http://127.0.0.1:9/v1", KEY, attempts=1))
    episode = away.open()
    body = b'{"model": "any", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}]}'
    path, headers = "/v1/messages/count_tokens", {"x-api-key": episode.key}
    for status, words in ((500, b"could not answer"), (400, b"budget"), (400, b"has ended")):
        refused = await post(away, path, body, headers)
        assert (refused.status, words in refused.body) == (status, True)
        if episode.record.spent:
            await episode.record.seal()
        episode.record.spent = True


async def test_an_api_that_is_away_is_a_failure_of_the_infrastructure() -> None:
    away = Upstream("gpt-x", "http://127.0.0.1:9/v1", KEY, attempts=2, first_pause=0.0)
    (trajectory,) = await play(Program(programs.stepping, away), n=1, retries=0)
    assert (trajectory.failures[0].boundary, trajectory.reward) == ("infrastructure", None)
