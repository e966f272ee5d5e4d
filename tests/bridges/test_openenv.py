"""OpenEnv against the real package: its client on our environments, our environment on its server, and late answers."""

import asyncio
import contextlib
import importlib.util
import json
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("websockets")

import uvicorn
from websockets.asyncio.server import ServerConnection, serve

import palestra
from palestra import check_env
from palestra.bridges.openenv import _Hosted, openenv_app
from palestra.bridges.openenv_env import OpenEnv
from palestra.errors import EnvError, InfrastructureError, MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from tests.bridges.bridging import outcome

GAME = "game:GuessTheNumber-v0-easy"


@contextlib.asynccontextmanager
async def running(app: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="websockets-sansio"))
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await serving


@pytest.mark.filterwarnings("default")
async def test_their_client_plays_our_environment() -> None:
    core = pytest.importorskip("openenv.core")
    with palestra.make(GAME) as local:
        first_shown, _ = local.reset(seed=3)
        steps = [local.step(f"\\boxed{{{number}}}") for number in (0, 5)]
    async with running(openenv_app(GAME)) as url, core.GenericEnvClient(base_url=url) as client:
        first = await client.reset(seed=3)
        assert first.observation["text"] == first_shown
        for number, expected in zip((0, 5), steps, strict=True):
            told = await client.step({"message": f"\\boxed{{{number}}}"})
            assert (told.observation["text"], told.reward, told.done) == (
                expected.observation,
                expected.reward,
                expected.terminated or expected.truncated,
            )
        assert (await client.state())["step_count"] == 2


@pytest.mark.filterwarnings("default")
async def test_our_environment_plays_their_server() -> None:
    pytest.importorskip("openenv.core")
    async with running(openenv_app(GAME)) as url:
        there = palestra.make_async(f"openenv:{url}", action_field="message", observation_field="text")
        here = palestra.make_async(GAME)
        for seed in (1, 2):
            assert (await there.reset(seed=seed))[0] == (await here.reset(seed=seed))[0]
            for number in range(1, 4):
                ours, theirs = await here.step(f"\\boxed{{{number}}}"), await there.step(f"\\boxed{{{number}}}")
                assert (ours.observation, ours.reward) == (theirs.observation, theirs.reward)
                if ours.terminated:
                    break
        with pytest.raises(EnvError) as caught:
            await OpenEnv(url).step("not what the server takes")
        assert caught.value.kind == "VALIDATION_ERROR"
        await there.close()
        await here.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
async def test_the_check_passes_and_replays_are_equal() -> None:
    pytest.importorskip("openenv.core")
    async with running(openenv_app(GAME)) as url:
        id = f"openenv:{url}?action_field=message&observation_field=text"
        report = await asyncio.to_thread(check_env, id, n=5)
    # A client does not learn these things of a server.
    unknown = ["ends", "oracle-solves", "random-plays", "constant-answer", "answer-hidden", "fork", "render"]
    assert outcome(report) == {"skip": unknown}


class Late:
    """Answers its first step too late, as a server of theirs may; every answer says which step it belongs to."""

    async def handle(self, socket: ServerConnection) -> None:
        async for message in socket:
            data = json.loads(message)
            action = data.get("data", {}).get("action", "reset")
            if action == "slow":
                await asyncio.sleep(0.3)
            answer = {"observation": {"text": action}, "reward": float(len(action)), "done": False}
            await socket.send(json.dumps({"type": "observation", "data": answer}))


async def test_a_late_answer_is_never_the_next_reward() -> None:
    async with serve(Late().handle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        env = OpenEnv(url, action_field="action", observation_field="text", deadline=0.1)
        await env.reset(seed=0)
        with pytest.raises(InfrastructureError, match="TimeoutError"):
            await env.step("slow")
        env._deadline = 5.0
        assert (await env.step("a")).observation == "a"
        cancelled = asyncio.create_task(env.step("slow"))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert (await env.step("bb")).reward == 2.0
        await env.close()


@pytest.mark.parametrize("answer", ["", "[]", '{"type":"exec"}', '{"type":"observation","data":{}}', '{"type":"state"}'])
async def test_an_answer_that_is_none_is_infrastructure(answer: str) -> None:
    async def handle(socket: ServerConnection) -> None:
        async for _ in socket:
            await socket.send(answer)

    async with serve(handle, "127.0.0.1", 0) as server:
        env = OpenEnv(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(InfrastructureError):
            await env.reset(seed=0)
        await env.close()


def test_an_address_is_a_url() -> None:
    with pytest.raises(UsageError, match="openenv:http://HOST:PORT"):
        palestra.make_async("openenv:nowhere")


def test_ours_behind_their_interface_without_the_package() -> None:
    with palestra.make(GAME) as local:
        first, _ = local.reset(seed=3)
        second = local.step("\\boxed{5}")
    hosted = _Hosted(palestra.make(GAME), SimpleNamespace, SimpleNamespace)
    shown = hosted.reset(seed=3, episode_id="e", other="ignored")
    assert (shown.text, shown.info) == (first, {"max_turns": 4})
    told = hosted.step(SimpleNamespace(message="\\boxed{5}"), timeout_s=1.0)
    assert (told.text, told.reward, told.done) == (second.observation, second.reward, second.terminated)
    assert (hosted.state.episode_id, hosted.state.step_count) == ("e", 1)
    hosted.close()


@pytest.mark.skipif(importlib.util.find_spec("openenv") is not None, reason="OpenEnv is installed")
def test_without_the_package_the_message_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=re.escape(how_to_install("openenv"))):
        openenv_app(GAME)
