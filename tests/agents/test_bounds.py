"""What the gateway and the door of tools keep: how many renderers and sessions, and how many bytes of answered calls."""

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.agents.driving import ADD, Agent, events_of, post
from tests.agents.test_gateway import agent, write
from tests.agents.test_tool_door import _call, _message, _Played

from palestra.agents import CallBudget, Capture, Gateway, SamplingRule, Upstream, probe
from palestra.agents.holdings import CALL, Holdings
from palestra.agents.hosted import ProgramContext, Start
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import BadRequest
from palestra.agents.tooldoor import ToolDoor
from palestra.encoding import floats, ints
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import Finish, Task, Tokens


async def test_the_renderers_of_sixteen_sets_of_tools_are_kept_and_the_one_used_least_recently_is_made_again() -> None:
    made: list[str] = []

    def renderers(tools: Any) -> ByteRenderer:
        made.append(tools[0]["function"]["name"])
        return ByteRenderer()

    gateway = Gateway(ScriptedEngine(write), renderers)
    episode = gateway.open()
    for turn, number in enumerate((*range(16), 0, 16, 0, 2, 1)):
        one = agent(gateway, episode, f"Hello {turn}")
        one.tools = ({**ADD, "name": f"add{number}"},)
        await one.ask()
    assert made == [f"add{number}" for number in (*range(16), 16, 1)]
    await gateway.close(episode)


async def test_a_stream_names_the_stop_sequence_only_if_there_was_one() -> None:
    named = []
    for stops in ([], ["3"]):
        gateway = Gateway(ScriptedEngine(lambda prompt, sampling: [*map(ord, "r3"), 0]), lambda tools: ByteRenderer())
        episode = gateway.open()
        one = Agent(gateway, episode, "anthropic", stream=True, extra={"stop_sequences": stops})
        one.user("Count")
        answer = await post(gateway, "/v1/messages", one.body(), one.auth())
        named += [data["delta"]["stop_sequence"] for name, data in events_of(answer.body) if name == "message_delta"]
        await gateway.close(episode)
    assert named == [None, "3"]


def test_defaults() -> None:
    million = 1 << 20
    assert GatewayLimits() == GatewayLimits(
        body=4 * million,
        read_seconds=30.0,
        write_seconds=60.0,
        ping_seconds=10.0,
        pending=64,
        values=50_000,
        messages=4096,
        tools=million // 4,
        calls=10_000,
        memory=128 * million,
        total_memory=4096 * million,
        connections=10_000,
        head_seconds=60.0,
    )
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
    class Engine:
        async def generate(self, prompt: Any, sampling: Any) -> Any:
            ids, logprobs = tokens or ([1], [-0.5])
            prompt = ints(np.append(prompt, 1)) if tokens is None else prompt
            return Tokens(prompt, ints(ids), floats(logprobs)), Finish.STOP

    assert await probe(Engine(), ByteRenderer()) is level  # type: ignore[arg-type]
    assert await probe(None, ByteRenderer()) is Capture.TEXT


def test_a_program_sees_all_messages_at_the_beginning_and_the_last_as_its_observation() -> None:
    messages = ({"role": "system", "content": "Play."}, {"role": "user", "content": "Go."})
    context = ProgramContext(Start("", "", "", "m", messages, Task("program")), lambda action: "")
    assert (context.observation, list(context.messages)) == ("Go.", list(messages))


async def test_sixty_four_sessions_of_an_episode_may_wait_and_what_they_were_answered_is_counted() -> None:
    played = _Played()
    held = Holdings.of_episode(GatewayLimits())
    door = ToolDoor(lambda: (), played.take, lambda: played.ended, held)
    waiting = []
    for _ in range(64):
        session = (await door.answer(_message("initialize"), "")).session
        waiting.append(asyncio.ensure_future(door.answer(_call(2, "north"), session)))
        await asyncio.sleep(0)
    with pytest.raises(BadRequest, match="64 MCP sessions of this episode wait"):
        await door.answer(_message("initialize"), "")
    played.gate.set()
    answers = [(await one).body for one in waiting]
    assert held.held == sum(CALL + len(answer) for answer in answers)
    door.close()
    await asyncio.sleep(0)
    assert held.held == 0
