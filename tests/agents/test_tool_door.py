"""The environment's tools by MCP: the official client, one step per call, and the end of an episode."""

import asyncio
import json
from importlib.util import find_spec
from typing import Any

import pytest
from tests.agents import programs
from tests.agents.driving import ADD, post
from tests.agents.test_hosted import START
from tests.agents.test_program import play, program

from palestra.agents import OpenEpisode, Program
from palestra.agents.holdings import CALL, Holdings
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import BadRequest
from palestra.agents.performing import InProcess
from palestra.agents.rendezvous import ActionAnswer, Rendezvous
from palestra.agents.tooldoor import ToolDoor
from palestra.core import Env, Step
from palestra.rollouts import rollout
from palestra.trajectory import StopReason, Task, ToolResult
from palestra.trajectory.calls import format_result, parse_calls

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")


class Sums(Env):
    """Answer ``5``; the tool ``add`` adds."""

    def __init__(self, seen: list[str] | None = None) -> None:
        self.seen = [] if seen is None else seen

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "What is 2 + 3?", {"tools": [ADD]}

    def step(self, action: str) -> Step:
        self.seen.append(action)
        (call, *_) = parse_calls(action).calls or (None,)
        if call is None:
            return Step("The end.", float(action == "5"), True, False, {})
        good = set(call.arguments) == {"a", "b"}  # type: ignore[union-attr]
        text = str(sum(call.arguments.values())) if good else "a and b, please"  # type: ignore[union-attr]
        return Step(format_result("add", ToolResult(text, good)), 0.0, False, False, {"role": "tool", "tools": {"totals": {}}})


async def _adds(episode: Any) -> None:
    async with programs.tools_of(episode) as server:
        assert sorted(tool.name for tool in await server.tools()) == ["act", "add"]
        session = await server.take()
        assert await session.call("add", {"a": 2}) == ToolResult("a and b, please", ok=False)
        added = await session.call("add", {"a": 2, "b": 3})
        assert added.ok
        assert (await session.call("act", {"action": added.text})).text == "The end."
        assert not (await session.call("act", {"action": "6"})).ok
        await server.give_back(session)


async def test_the_tools_of_an_environment_are_the_tools_of_the_agent() -> None:
    seen: list[str] = []
    (trajectory,) = [trajectory async for trajectory in rollout(lambda: Sums(seen), program(_adds), n=1)]
    assert trajectory.stop is StopReason.TERMINATED, trajectory.failures
    assert trajectory.reward == 1.0
    assert len(seen) == 3
    assert [turn.action for turn in trajectory.turns] == seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_mcp", "by_command", "plain_by_mcp"])
async def test_the_official_client_plays_episodes_of_an_environment_without_tools(name: str) -> None:
    policy = program(f"tests.agents.programs:{name}")
    for trajectory in await play(policy, n=3):
        assert trajectory.stop in (StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.TURN_LIMIT), trajectory.failures
        assert [turn.action for turn in trajectory.turns] == [f"\\boxed{{{1 + at}}}" for at in range(len(trajectory.turns))]
        assert len(trajectory.agent.calls) == (name == "plain_by_mcp")  # type: ignore[union-attr]
    assert len(policy.gateway) == 0
    assert not policy.gateway.url


def _message(method: str, id: int = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def _call(id: int, action: str) -> bytes:
    return _message("tools/call", id, name="act", arguments={"action": action})


class _Played:
    """An environment that answers after ``gate``."""

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.gate = asyncio.Event()
        self.ended = False

    async def take(self, action: str) -> ActionAnswer:
        self.actions.append(action)
        await self.gate.wait()
        return ActionAnswer(f"saw {action}", played=True)

    def door(self) -> ToolDoor:
        return ToolDoor(lambda: (), self.take, lambda: self.ended, Holdings.of_episode(GatewayLimits()))


async def _session(door: ToolDoor) -> str:
    return (await door.answer(_message("initialize"), "")).session


def _text(body: bytes) -> str:
    text: str = json.loads(body)["result"]["content"][0]["text"]
    return text


async def test_a_call_that_is_sent_again_takes_no_second_step() -> None:
    played = _Played()
    door = played.door()
    session = await _session(door)
    gone = asyncio.ensure_future(door.answer(_call(2, "north"), session))
    await asyncio.sleep(0)
    gone.cancel()  # the client goes away in the middle of the step
    again = asyncio.ensure_future(door.answer(_call(2, "north"), session))
    await asyncio.sleep(0)
    played.gate.set()
    assert _text((await again).body) == "saw north"
    assert _text((await door.answer(_call(2, "north"), session)).body) == "saw north"
    assert played.actions == ["north"]
    other = await _session(door)
    assert _text((await door.answer(_call(2, "north"), other)).body) == "saw north"
    assert played.actions == ["north", "north"]  # another client's call is another step


async def test_calls_without_a_session_and_after_the_end_reach_nothing() -> None:
    played = _Played()
    door = played.door()
    for session, status in (("", 400), ("unknown", 404)):
        with pytest.raises(BadRequest) as refused:
            await door.answer(_call(2, "north"), session)
        assert refused.value.status == status
    session = await _session(door)
    played.ended = True
    assert json.loads((await door.answer(_call(2, "north"), session)).body)["result"]["isError"]
    assert played.actions == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (_message("server/discover"), -32601),
        (_message("tools/call", name="nothing"), -32602),
        (_message("tools/call", name="act", arguments={"action": 5}), -32602),
        (_message("tools/call"), -32602),
    ],
)
async def test_a_message_that_the_door_does_not_know_is_refused(body: bytes, code: int) -> None:
    door = _Played().door()
    session = await _session(door)
    assert json.loads((await door.answer(body, session)).body)["error"]["code"] == code


async def test_sessions_that_nobody_uses_make_room_and_waiting_ones_do_not() -> None:
    played = _Played()
    door = played.door()
    first = await _session(door)
    waiting = asyncio.ensure_future(door.answer(_call(2, "north"), first))
    await asyncio.sleep(0)
    for _ in range(200):
        latest = await _session(door)
    played.gate.set()
    assert _text((await waiting).body) == "saw north"
    for session in (first, latest):
        assert _text((await door.answer(_call(3, "south"), session)).body) == "saw south"


async def test_sixty_four_sessions_of_an_episode_may_wait_and_what_they_were_answered_is_counted() -> None:
    played = _Played()
    held = Holdings.of_episode(GatewayLimits())
    door = ToolDoor(lambda: (), played.take, lambda: played.ended, held)
    waiting = []
    for _ in range(64):
        waiting.append(asyncio.ensure_future(door.answer(_call(2, "north"), await _session(door))))
        await asyncio.sleep(0)
    with pytest.raises(BadRequest, match="64 MCP sessions of this episode wait"):
        await _session(door)
    played.gate.set()
    answered = [(await answer).body for answer in waiting]
    assert held.held == sum(CALL + len(body) for body in answered)
    door.close()
    await asyncio.sleep(0)
    assert held.held == 0


async def test_a_key_cannot_reach_the_tools_of_another_episode() -> None:
    policy: Program = program(programs.stepping)
    first, second = policy.gateway.open(), policy.gateway.open()
    played = _Played()
    first.record.door = played.door()

    def key(episode: OpenEpisode) -> dict[str, str]:
        return {"authorization": f"Bearer {episode.key}"}

    for headers, status in (
        ({}, 401),
        ({**key(first), "x-api-key": second.key}, 403),
        (key(second), 404),  # its episode has no tools
        (key(first), 200),
    ):
        assert (await post(policy.gateway, "/mcp", _message("initialize"), headers)).status == status
    await policy.gateway.close(first)
    assert (await post(policy.gateway, "/mcp", _message("ping"), key(first))).status == 401


async def test_a_step_that_the_agent_gave_up_keeps_its_observation() -> None:
    meeting = Rendezvous()
    action = meeting.expect()
    first = asyncio.ensure_future(meeting.take("one"))
    assert await action == "one"
    meeting.begin_step()
    first.cancel()  # a tool's timeout in the agent's framework
    second = asyncio.ensure_future(meeting.take("two"))
    await asyncio.sleep(0)
    action = meeting.expect()
    meeting.pass_on("saw one")
    assert await action == "two"
    meeting.begin_step()
    meeting.pass_on("saw two", ended=True)
    assert await second == ActionAnswer("saw two", played=True)
    assert await meeting.take("three") == ActionAnswer("saw two", played=False)


async def test_a_call_that_waits_when_the_episode_ends_is_answered_with_an_error() -> None:
    performance = InProcess(lambda episode: asyncio.Event().wait(), START)
    actions = performance.actions
    door = ToolDoor(lambda: (), actions.take, lambda: actions.ended, Holdings.of_episode(GatewayLimits()))
    session = await _session(door)
    beginning = asyncio.ensure_future(performance.begin())
    await asyncio.sleep(0)
    first = asyncio.ensure_future(door.answer(_call(2, "one"), session))
    assert (await beginning).action == "one"
    second = asyncio.ensure_future(door.answer(_call(3, "two"), session))
    await asyncio.sleep(0)
    await performance.finish("the end of one", 0.0)
    assert _text((await first).body) == "the end of one"
    late = json.loads((await second).body)["result"]
    assert late == {"content": [{"type": "text", "text": "The episode has ended."}], "isError": True}
