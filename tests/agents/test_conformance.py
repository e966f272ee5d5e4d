"""What agents do to a conversation, in every dialect, with streaming and without.

In every case the recording is exactly what the engine saw and sampled, with every sampled token once, and every prompt that had
to be rendered anew is counted with its reason.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.driving import ADD, Agent, Client, DialectName
from tests.agents.witness import Witness, Write, prove, renderers

from palestra.agents import CallBudget, CallRole, Gateway, GatewayLimits, OpenEpisode, Recording, SamplingRule
from palestra.core import Sampling

pytestmark = pytest.mark.torch


def call(a: int, b: int, prose: str = "") -> str:
    return f'{prose}<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call>'


class Stage:
    """A gateway, an engine that writes what a test says, and one episode."""

    def __init__(self, dialect: DialectName, stream: bool) -> None:
        self.dialect = dialect
        self.stream = stream
        self.limits = GatewayLimits(ping_seconds=0.05)

    def begin(self, write: Write | list[str], **options: Any) -> Agent:
        rule = SamplingRule(Sampling(max_tokens=options.pop("max_tokens", 512)), honor=options.pop("honor", False))
        append_only = options.pop("append_only", True)
        self.witness = Witness(write)
        self.gateway = Gateway(
            self.witness, lambda tools: renderers(tools, append_only=append_only), rule=rule, limits=self.limits
        )
        self.episode: OpenEpisode = self.gateway.open(**options)
        return self.agent()

    def agent(self, **changes: Any) -> Agent:
        return Agent(self.gateway, self.episode, self.dialect, self.stream, **{"tools": (ADD,), **changes})

    async def end(self) -> Recording:
        recording = await self.gateway.close(self.episode)
        prove(recording, self.witness)
        return recording


@pytest.fixture(params=[(name, stream) for name in ("chat", "responses", "anthropic") for stream in (False, True)], ids=str)
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(*request.param)


def roles(recording: Recording) -> list[str]:
    return [str(call.role) for call in recording.calls]


async def test_a_task_with_tools_is_one_segment_and_parallel_calls_come_back_in_order(stage: Stage) -> None:
    agent = stage.begin([call(2, 3, "First I add.\n"), call(5, 4) + "\n" + call(1, 2), "9 and 3."])
    agent.user("What is 2 + 3 + 4, and 1 + 2?")
    for added, results in (([(2, 3)], ["5"]), ([(5, 4), (1, 2)], ["9", "3"])):
        answer = agent.take(await agent.ask())
        assert [(call.name, call.arguments) for call in answer.calls] == [("add", {"a": a, "b": b}) for a, b in added]
        assert len({call.id for call in answer.calls}) == len(added)
        assert answer.finish == "tool_calls"
        agent.results(answer, results)
    last = await agent.ask()
    assert (last.text, last.calls, last.finish) == ("9 and 3.", (), "stop")
    recording = await stage.end()
    assert recording.links == {"start": 1, "extended": 2}
    assert len(recording.segments[CallRole.AGENT]) == 1
    assert (recording.merged, recording.forks) == (1.0, {})
    assert [call.tools for call in recording.calls] == [("add",), ("add", "add"), ()]


@pytest.mark.parametrize("which", [0, 2], ids=["first", "last"])
async def test_a_retry_gets_the_same_answer_and_samples_nothing(stage: Stage, which: int) -> None:
    agent = stage.begin([call(1, 1), call(2, 2), "4"])
    agent.user("Go.")
    for number in range(3):
        body = agent.body()
        answer = await agent.ask()
        if number == which:
            assert agent.read(await agent.send(body)) == answer
        agent.take(answer)
        if answer.calls:
            agent.results(answer, ["2"])
    recording = await stage.end()
    assert recording.replayed == 1
    assert stage.witness.begun == 3
    assert recording.links == {"start": 1, "extended": 2}
    assert roles(recording) == ["agent"] * 3


async def test_an_sdk_retry_of_an_earlier_turn_is_a_retry_and_the_same_body_is_not(stage: Stage) -> None:
    agent = stage.begin(["one", "two"])
    agent.user("What do you see?")
    first = await agent.ask()
    stage.episode.record.turn = 1
    second = await agent.ask()  # an agent without memory that sees the same observation again
    assert (first.text, second.text) == ("one", "two")
    agent.headers["x-stainless-retry-count"] = "1"
    assert (await agent.ask()).text == "two"
    recording = await stage.end()
    assert recording.links == {"start": 1, "repeated": 1}


async def test_idempotency_keys_name_calls(stage: Stage) -> None:
    agent = stage.begin(["one", "two"])
    agent.user("Say a number.")
    texts = []
    for key in ("k1", "k2", "k1"):
        agent.headers["Idempotency-Key"] = key
        texts.append((await agent.ask()).text)
    assert texts == ["one", "two", "one"]
    agent.user("Another body.")
    assert (await agent.send()).status == 422
    recording = await stage.end()
    assert recording.replayed == 1
    # The agent did not continue any of the two; the last one stands.
    assert roles(recording) == ["discarded", "agent"]


async def test_calls_in_flight_are_one(stage: Stage) -> None:
    agent = stage.begin(["four"])
    agent.user("What is 2 + 2?")
    stage.witness.gate.clear()
    asking = [asyncio.ensure_future(agent.ask()) for _ in range(3)]
    await asyncio.sleep(0.01)
    stage.witness.gate.set()
    assert {(await answer).text for answer in asking} == {"four"}
    assert stage.witness.begun == 1
    assert (await stage.end()).replayed == 2


async def test_two_sub_agents_in_parallel_are_two_segments(stage: Stage) -> None:
    stage.begin(lambda prompt, _: "north" if "north" in prompt else "south")

    async def work(task: str) -> None:
        agent = stage.agent(system=f"You work in the {task}.")
        for number in range(3):
            agent.user(f"Work, {number}.")
            assert agent.take(await agent.ask()).text == task

    async with asyncio.TaskGroup() as group:
        for task in ("north", "south"):
            group.create_task(work(task))
    recording = await stage.end()
    assert recording.links == {"start": 2, "extended": 4}
    assert len(recording.segments[CallRole.AGENT]) == 2


async def test_a_compacted_history_is_a_fork_by_compaction(stage: Stage) -> None:
    summary = "So far: 1 + 1 is 2, and 2 + 2 is 4."
    agent = stage.begin([call(1, 1), call(2, 2), summary, "Now 8."])
    agent.user("Add until 8.")
    for result in ("2", "4"):
        answer = agent.take(await agent.ask())
        agent.results(answer, [result])
    asking = agent.branch()
    asking.user("Summarize.")
    agent.history = []
    agent.user(f"Add until 8. {(await asking.ask()).text}")
    assert (await agent.ask()).text == "Now 8."
    recording = await stage.end()
    assert recording.forks == {"compaction": 1}
    assert roles(recording) == ["agent", "agent", "auxiliary", "agent"]
    assert len(recording.segments[CallRole.AUXILIARY]) == 1


def drop_the_middle(agent: Agent) -> None:
    del agent.history[1:-2]  # the task stays, and the last call with its result


def replace(old: str, new: str) -> Callable[[Agent], None]:
    def edit(agent: Agent) -> None:
        agent.history = json.loads(json.dumps(agent.history).replace(old, new))

    return edit


def say_otherwise(agent: Agent) -> None:
    """The same system text in another form, and the same arguments in another order."""
    for item in agent.history:
        for called in [item, *(c["function"] for c in item.get("tool_calls") or ())]:
            if "arguments" in called:
                called["arguments"] = json.dumps(dict(reversed(json.loads(called["arguments"]).items())), indent=2)
        for block in item["content"] if isinstance(item.get("content"), list) else ():
            if block.get("type") == "tool_use":
                block["input"] = dict(reversed(block["input"].items()))
    if agent.dialect == "chat":
        agent.history.insert(0, {"role": "developer", "content": [{"type": "text", "text": agent.system + "\n"}]})
        agent.system = ""
    elif agent.dialect == "responses":
        agent.history.insert(0, {"role": "developer", "content": [{"type": "input_text", "text": agent.system}]})
        agent.system = ""


def rename(agent: Agent) -> None:
    agent.system = "It is 12:01. You are a careful assistant."


def borrow(agent: Agent) -> None:
    agent.history = [{"role": role, "content": "From elsewhere."} for role in ("user", "assistant", "user")]


ADDING = [call(1, 1), call(2, 2), "4"]
THINKING = ["<think>\nhm\n</think>\n\nfive", "<think>\nhm\n</think>\n\nsix", "seven"]
CHANGES: dict[str, tuple[list[str], Callable[[Agent], None], dict[str, int]]] = {
    "a window without the middle": (ADDING, drop_the_middle, {"start": 1, "extended": 1, "compaction": 1}),
    "an edited reply": (["one", "two", "three"], replace("two", "2"), {"start": 1, "extended": 1, "edit": 1}),
    "another system text": (["one", "two", "three"], rename, {"start": 1, "extended": 1, "edit": 1}),
    "the same in another form": (ADDING, say_otherwise, {"start": 1, "extended": 2}),
    "replies of another model": (["one", "two", "three"], borrow, {"start": 1, "extended": 1, "unknown": 1}),
    "a template that drops thinking": (THINKING, lambda agent: None, {"start": 1, "template": 2}),
}


@pytest.mark.parametrize("kind", CHANGES)
async def test_what_an_agent_does_to_its_history_is_counted_with_its_reason(stage: Stage, kind: str) -> None:
    replies, change, links = CHANGES[kind]
    agent = stage.begin(replies, append_only="thinking" not in kind)
    agent.user("Go.")
    for result in ("2", "4"):
        answer = agent.take(await agent.ask())
        if answer.calls:
            agent.results(answer, [result])
        else:
            agent.user(f"And {result}?")
    change(agent)
    await agent.ask()
    recording = await stage.end()
    assert recording.links == links
    assert recording.forks == {name: count for name, count in links.items() if name not in ("start", "extended")}


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_disconnect_in_mid_answer_loses_nothing(stage: Stage, comes_back: bool) -> None:
    agent = stage.begin([call(1, 2), "3"])
    agent.user("Go.")
    stage.witness.gate.clear()
    body = agent.body()
    await agent.send(body, Client(disconnect_after=0.02))
    stage.witness.gate.set()
    if comes_back:
        answer = agent.take(agent.read(await agent.send(body)))
        agent.results(answer, ["3"])
        await agent.ask()
    else:
        while not stage.witness.sampled:
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
    assert roles(await stage.end()) == (["agent"] * 2 if comes_back else ["discarded"])
    assert stage.witness.begun == 1 + comes_back


@pytest.mark.parametrize(
    ("reply", "text", "calls", "finish"),
    [
        (call(123456, 2), '<tool_call>\n{"name', 0, "length"),
        (call(1, 2) + "<tool_call>oops</tool_call>", "<tool_call>oops</tool_call>", 1, "tool_calls"),
    ],
    ids=["truncated", "malformed"],
)
async def test_a_spoilt_tool_call_is_text_and_can_be_continued(
    stage: Stage, reply: str, text: str, calls: int, finish: str
) -> None:
    agent = stage.begin([reply, "ok"], max_tokens=8 if finish == "length" else 512)
    agent.user("Go.")
    answer = agent.take(await agent.ask())
    assert answer.text.startswith(text)
    assert (len(answer.calls), answer.finish) == (calls, finish)
    if calls:
        agent.results(answer, ["3"])
    else:
        agent.user("That call was cut.")
    await agent.ask()
    recording = await stage.end()
    assert recording.links == {"start": 1, "extended": 1}
    assert (recording.calls[0].finish == "length") == (finish == "length")


async def test_new_weights_in_mid_episode_and_mid_reply(stage: Stage) -> None:
    agent = stage.begin(["one two three", "four five six"])
    agent.user("Count.")
    agent.take(await agent.ask())
    stage.witness.version = 7
    stage.witness.change_at = 2
    agent.user("On.")
    await agent.ask()
    recording = await stage.end()
    (segment,) = recording.segments[CallRole.AGENT]
    assert [span.version for span in segment.spans] == [0, 7, 8]


async def test_a_stream_that_is_read_slowly_is_complete(stage: Stage) -> None:
    long = "word " * 2000
    agent = stage.begin([long], max_tokens=20_000)
    agent.extra = {"max_tokens": 20_000}
    agent.user("Write a lot.")
    stage.witness.gate.clear()
    asking = asyncio.ensure_future(agent.ask(Client(slow=0.01)))
    await asyncio.sleep(0.15)  # pings are sent in the meantime
    stage.witness.gate.set()
    assert (await asking).text == long
    assert roles(await stage.end()) == ["agent"]


async def test_an_edited_observation_branches_off_the_recorded_ids(stage: Stage) -> None:
    agent = stage.begin([call(1, 2), "three", "four"])
    agent.user("Go.")
    answer = agent.take(await agent.ask())
    other = agent.branch()
    agent.results(answer, ["3"])
    other.results(answer, ["4"])
    assert [(await agent.ask()).text, (await other.ask()).text] == ["three", "four"]
    recording = await stage.end()
    assert recording.links == {"start": 1, "extended": 2}
    assert len(recording.segments[CallRole.AGENT]) == 2


async def test_a_title_beside_the_work_is_auxiliary_unless_the_agent_names_it(stage: Stage) -> None:
    agent = stage.begin(["A title", call(1, 2), "3", "A vote"])
    title = stage.agent(tools=(), system="Write a title.")
    title.user("Adding numbers")
    await title.ask()
    agent.user("Go.")
    answer = agent.take(await agent.ask())
    agent.results(answer, ["3"])
    await agent.ask()
    named = stage.agent(tools=(), system="Vote.", headers={"x-palestra-role": "agent"})
    named.user("Yes or no?")
    await named.ask()
    assert roles(await stage.end()) == ["auxiliary", "agent", "agent", "agent"]


@pytest.mark.parametrize("budget", [CallBudget(calls=1), CallBudget(tokens=2)])
async def test_a_budget_ends_with_a_text_outside_the_record(stage: Stage, budget: CallBudget) -> None:
    agent = stage.begin([call(1, 1), call(1, 1)], budget=budget)
    agent.user("Go.")
    answer = agent.take(await agent.ask())
    agent.results(answer, ["2"])
    last = await agent.ask()
    assert (last.calls, last.finish) == ((), "stop")
    assert "budget" in last.text
    recording = await stage.end()
    assert (len(recording.calls), recording.refused) == (1, 1)
    assert stage.episode.record.spent


@pytest.mark.parametrize("honor", [False, True])
async def test_temperatures_are_overridden_in_training_and_honored_in_evaluation(stage: Stage, honor: bool) -> None:
    agent = stage.begin(["one"], honor=honor)
    agent.extra = {"temperature": 0.2, "top_p": 0.9}
    agent.user("Go.")
    await agent.ask()
    (sampling,) = stage.witness.samplings
    assert (sampling.temperature, sampling.top_p) == ((0.2, 0.9) if honor else (1.0, 1.0))
    assert (await stage.end()).overridden == ({} if honor else {"temperature": 1, "top_p": 1})


async def test_a_failing_engine_is_an_error_that_a_retry_can_mend(stage: Stage) -> None:
    agent = stage.begin(["ok"])
    stage.witness.fail_next = 1
    agent.user("Go.")
    refused = await agent.send()
    assert refused.status == 500
    assert b"secret" not in refused.body
    assert stage.episode.record.failure is not None
    assert (await agent.ask()).text == "ok"
    assert (await stage.end()).links == {"start": 1}


async def test_a_full_context_is_the_error_that_agents_know(stage: Stage) -> None:
    agent = stage.begin(["ok"])
    stage.witness.context_length = 20
    agent.user("A text that is far too long for a context of twenty tokens.")
    refused = await agent.send()
    assert refused.status == 400
    assert b"context" in refused.body
    assert stage.episode.record.counts.overflowed == 1
    assert (await stage.end()).calls == ()


async def test_seeds_follow_the_prompt_and_not_the_order(stage: Stage) -> None:
    async def seeds(order: list[str]) -> dict[str, int | None]:
        stage.begin(lambda prompt, _: "ok", seed=5)
        drawn = {}
        for text in order:
            agent = stage.agent()
            agent.user(text)
            await agent.ask()
            drawn[text] = stage.witness.samplings[-1].seed
        return drawn

    first = await seeds(["a", "b", "c"])
    assert first == await seeds(["c", "a", "b"])
    assert len(set(first.values())) == 3
