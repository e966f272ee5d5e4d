import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.agents.upstream import Upstream
from palestra.core import Conversation, Sampling
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.policies.chat_wire import read_answer, wire_messages
from palestra.policies.history import LastObservation, Summary
from palestra.policies.limits import Budget, Gate
from palestra.registry import make_async
from palestra.trajectory import Completion, Finish, Image, Message, Task, Text, ToolCall, ToolResult
from palestra.trajectory.calls import format_call, format_result, parse_calls
from tests.inference.servers.servers import serving
from tests.policies.chat_server import ChatServer

TASK = Task("game:GuessTheNumber-v0-easy", 0)


@asynccontextmanager
async def chatting(
    server: ChatServer, policy_options: dict[str, Any] | None = None, **endpoint: Any
) -> AsyncIterator[ChatPolicy]:
    async with serving(server.app()) as url:
        options = {"longest_wait": 0.02, **endpoint}
        policy = ChatPolicy(Endpoint("stub", f"{url}/v1", **options), **(policy_options or {}))
        yield policy
        await policy.close()


def conversation(*messages: Message) -> Conversation:
    talk = Conversation(TASK, make_async(TASK.env))
    talk.messages += messages or (Message("user", "hello"),)
    return talk


async def episode(policy: ChatPolicy, turns: int) -> list[Completion]:
    talk, out = conversation(), []
    for turn in range(turns):
        completion = await policy.act(talk)
        out.append(completion)
        talk.messages += [Message("assistant", completion.text), Message("user", f"o{turn}")]
    return out


async def test_a_turn_is_text_and_what_it_cost() -> None:
    async with chatting(ChatServer(), prompt_price=1.0, completion_price=10.0) as policy:
        (completion,) = await episode(policy, 1)
    assert completion.text == "reply 1"
    assert completion.finish is Finish.STOP
    assert completion.usage is not None
    assert completion.usage.dollars == pytest.approx((10 + 70) / 1e6)
    assert policy.ledger.dollars == pytest.approx((10 + 70) / 1e6)


@pytest.mark.slow
async def test_every_episode_is_accounted_through_all_faults_and_no_turn_is_there_twice() -> None:
    server = ChatServer({"429": 0.1, "500": 0.1, "cut": 0.1, "stall": 0.02}, stall=30.0)
    async with chatting(server, timeout=1.5, attempts=40) as policy:
        played = await asyncio.gather(*(episode(policy, 4) for _ in range(50)))
    for turns in played:
        assert [turn.text for turn in turns] == ["reply 1", "reply 3", "reply 5", "reply 7"]
    assert policy.ledger.calls == 200
    # On a busy machine a call may time out before the server has even seen it.
    assert policy.ledger.retries >= sum(server.kinds.values()) - 200
    assert set(server.kinds) == {"429", "500", "cut", "stall", "answer"}
    assert policy.ledger.lost >= server.kinds["cut"]


async def test_a_call_that_keeps_failing_is_the_infrastructures_fault() -> None:
    async with chatting(ChatServer({"500": 1.0}), attempts=3) as policy:
        with pytest.raises(InfrastructureError, match="3 calls failed"):
            await policy.act(conversation())
    server = ChatServer()
    async with chatting(server) as policy:
        gone = ChatPolicy(Endpoint("stub", "http://127.0.0.1:9/v1", attempts=2, longest_wait=0.01))
        with pytest.raises(InfrastructureError):
            await gone.act(conversation())
        assert gone.ledger.lost == 0, "a call that never connected cost nothing"
        await gone.close()


async def test_a_conversation_that_is_too_long_is_an_overflow_and_any_other_refusal_the_policys_fault() -> None:
    async with chatting(ChatServer({"400": 1.0})) as policy:
        assert await policy.act(conversation()) == Completion("", Finish.OVERFLOW)
    server = ChatServer()
    async with serving(server.app()) as url:
        lost = ChatPolicy(Endpoint("stub", f"{url}/nowhere"))
        with pytest.raises(PolicyError, match="404"):
            await lost.act(conversation())
        await lost.close()


@pytest.mark.parametrize(
    ("reply", "finish", "expected"),
    [
        ({}, "length", Finish.LENGTH),
        ({"content": None}, "stop", Finish.EMPTY),
        ({"content": ""}, "stop", Finish.EMPTY),
        ({"content": "", "reasoning_content": "hm"}, "stop", Finish.STOP),
    ],
)
async def test_how_an_answer_ended_is_told(reply: dict[str, Any], finish: str, expected: Finish) -> None:
    server = ChatServer()
    server.reply, server.finish = reply, finish
    async with chatting(server) as policy:
        assert (await policy.act(conversation())).finish is expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept(field: str) -> None:
    server = ChatServer()
    server.reply = {field: "let me see"}
    async with chatting(server) as policy:
        assert (await policy.act(conversation())).reasoning == "let me see"


@pytest.mark.parametrize("budget", [Budget(tokens=170), Budget(dollars=0.01)], ids=["tokens", "dollars"])
async def test_a_budget_is_exceeded_by_the_calls_in_flight_at_most(budget: Budget) -> None:
    server = ChatServer(pace=0.002)
    options = {"budget": budget}
    async with chatting(server, options, concurrency=8, prompt_price=100.0, completion_price=0.0) as policy:
        played = await asyncio.gather(*(episode(policy, 3) for _ in range(30)))
    spent = policy.ledger.prompt_tokens + policy.ledger.completion_tokens
    assert 170 <= spent <= 170 + 8 * 17
    assert {turns[-1].finish for turns in played} == {Finish.BUDGET}
    assert server.charged == spent


async def test_fields_of_the_servers_own_are_sent_along() -> None:
    server = ChatServer()
    async with chatting(server, extra={"chat_template_kwargs": {"enable_thinking": False}}) as policy:
        await policy.act(conversation())
    assert server.seen[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.seen[0]["model"] == "stub"


async def test_a_call_has_a_budget_of_its_own() -> None:
    server = ChatServer()
    async with chatting(server, {"budget": Budget(call_tokens=5)}) as policy:
        await policy.act(conversation())
    assert server.seen[-1]["max_tokens"] == 5
    async with chatting(server, {"budget": Budget(call_dollars=0.001)}, completion_price=100.0) as policy:
        await policy.act(conversation())
    assert server.seen[-1]["max_tokens"] == 10
    with pytest.raises(UsageError, match="does not pay"):
        ChatPolicy(Endpoint("m", "http://x", completion_price=100.0), budget=Budget(call_dollars=0.0000001))


@pytest.mark.slow
async def test_too_many_requests_narrow_the_gate_and_answers_widen_it() -> None:
    server = ChatServer({"429": 0.5}, pace=0.001)
    async with chatting(server, concurrency=64, attempts=60) as policy:
        await asyncio.gather(*(episode(policy, 2) for _ in range(64)))
        assert policy.gate.width < 64
        narrow = policy.gate.width
        server.faults = {}
        await asyncio.gather(*(episode(policy, 3) for _ in range(64)))
        assert policy.gate.width > narrow
        assert policy.gate.inside == 0


async def test_whoever_gives_up_waiting_leaves_no_hole_in_the_gate() -> None:
    gate = Gate(1)
    await gate.enter()
    waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    gate.leave()
    waiting[1].cancel()
    await asyncio.wait(waiting, timeout=60)
    assert waiting[2].done()
    assert gate.inside == 1


class FixedShots:
    """Shows the same turns before every task."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._messages = messages

    async def messages(self, task: Task) -> tuple[Message, ...]:
        return self._messages


async def test_shots_and_history_are_what_the_endpoint_sees() -> None:
    server = ChatServer()
    shots = (Message("user", "1+1"), Message("assistant", "2"))
    async with chatting(server, {"shots": FixedShots(shots), "history": LastObservation()}) as policy:
        await policy.act(
            conversation(Message("system", "s"), Message("user", "task"), Message("assistant", "a"), Message("user", "o"))
        )
    assert [message["content"] for message in server.seen[0]["messages"]] == ["s", "1+1", "2", "task\n\no"]


async def test_a_summary_is_asked_of_the_same_model_and_counted() -> None:
    server = ChatServer()
    async with chatting(server, {"history": Summary(2)}) as policy:
        await episode(policy, 3)
    assert policy.ledger.calls == 4
    assert server.seen[2]["messages"][-1]["content"].startswith("Sum up")
    assert "Your summary so far: reply 5" in server.seen[3]["messages"][0]["content"]


async def test_the_key_is_sent_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_KEY", "canary-7")
    server = ChatServer({"500": 1.0})
    async with chatting(server, key_variable="STUB_KEY", attempts=1) as policy:
        with pytest.raises(InfrastructureError) as caught:
            await policy.act(conversation())
        assert server.keys == {"Bearer canary-7"}
        assert "canary" not in f"{caught.value}{policy.endpoint}{vars(policy)}"


class Add:
    name = "add"
    description = "Adds."
    parameters: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}  # noqa: RUF012

    async def __call__(self, **arguments: Any) -> ToolResult:
        return ToolResult("3")


async def test_native_calls_come_back_as_text_and_go_out_native() -> None:
    server = ChatServer()
    native = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    server.reply = {"content": "Let me add.", "tool_calls": [native]}
    talk = conversation()
    async with chatting(server, {"tools": [Add()]}) as policy:
        completion = await policy.act(talk)
        prose, calls = parse_calls(completion.text)
        assert (prose, calls) == ("Let me add.", (ToolCall("add", {"a": 1}, "c1"),))
        talk.messages += [Message("assistant", completion.text), Message("user", "3")]
        await policy.act(talk)
    sent = server.seen[1]
    assert sent["tools"][0]["function"]["name"] == "add"
    assert sent["messages"][1]["content"] == "Let me add."
    (call,) = sent["messages"][1]["tool_calls"]
    assert (call["id"], call["function"]["name"], call["function"]["arguments"]) == ("c1", "add", '{"a":1}')
    assert sent["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "3"}


def test_calls_stay_text_where_no_tools_were_offered() -> None:
    text = format_call(ToolCall("add", {"a": 1}))
    assert wire_messages([Message("assistant", text)], native=False) == [{"role": "assistant", "content": text}]


def test_every_native_call_has_an_answer_and_a_bad_call_stays_text() -> None:
    two = format_call(ToolCall("f", {})) + format_call(ToolCall("g", {}))
    wire = wire_messages([Message("assistant", two), Message("user", "r"), Message("assistant", "<tool_call>{")], native=True)
    asked = [call["id"] for call in wire[0]["tool_calls"]]
    assert [message["tool_call_id"] for message in wire[1:3]] == asked
    assert wire[3] == {"role": "assistant", "content": "<tool_call>{"}


def test_each_call_is_answered_by_its_own_result() -> None:
    asked = format_call(ToolCall("f", {}, "c1")) + format_call(ToolCall("g", {}, "c2"))
    answered = "\n".join([format_result("f", ToolResult("1")), format_result("g", ToolResult("no", ok=False))])
    _, *wire = wire_messages([Message("assistant", asked), Message("tool", answered)], native=True)
    assert wire == [
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "Error: no"},
    ]
    (text,) = wire_messages([Message("tool", answered)], native=False)
    assert text == {"role": "user", "content": answered}, "an endpoint that was offered no tools reads the text"


@given(st.integers(1, 4), st.integers(1, 4))
def test_there_is_one_answer_for_each_call_and_no_result_is_lost(calls: int, results: int) -> None:
    asked = "".join(format_call(ToolCall("f", {}, f"c{number}")) for number in range(calls))
    answered = "\n".join(format_result("f", ToolResult(f"r{number}")) for number in range(results))
    _, *wire = wire_messages([Message("assistant", asked), Message("tool", answered)], native=True)
    assert [message["tool_call_id"] for message in wire] == [f"c{number}" for number in range(calls)]
    told = "\n".join(message["content"] for message in wire)
    assert all(f"r{number}" in told for number in range(results))


def test_arguments_that_are_no_object_reach_the_tool_as_written() -> None:
    body = b'{"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "not json"}}]}}]}'
    (call,) = parse_calls(read_answer(body).text).calls
    assert call == ToolCall("f", {"arguments": "not json"})


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"<html>", b'{"choices": [{"message": 3}]}'])
def test_a_body_that_is_no_completion_is_the_policys_fault(body: bytes) -> None:
    with pytest.raises(PolicyError, match="did not answer with a chat completion"):
        read_answer(body)


@pytest.mark.parametrize("kind", [Endpoint, Upstream])
def test_what_follows_the_key_is_written_by_name(kind: Any) -> None:
    with pytest.raises(TypeError, match="positional"):
        kind("m", "http://x/v1", "KEY", 60.0)
    made = kind("m", "http://x/v1", "KEY", timeout=60.0)
    assert (made.key_variable, made.timeout, made.prompt_price) == ("KEY", 60.0, 0.0)


def test_images_are_sent_along() -> None:
    (wire,) = wire_messages([Message("user", (Text("look"), Image(b"\x89PNG")))], native=False)
    assert wire["content"][0] == {"type": "text", "text": "look"}
    assert wire["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_a_policy_serves_one_event_loop_after_another() -> None:
    async def once() -> str:
        async with serving(ChatServer().app()) as url:
            policy = ChatPolicy(Endpoint("stub", f"{url}/v1"), Sampling(8, stop=("x",), top_p=0.9))
            text = (await policy.act(conversation())).text
            await policy.close()
            return text

    assert [asyncio.run(once()) for _ in range(2)] == ["reply 1", "reply 1"]
