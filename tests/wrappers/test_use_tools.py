import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core import AsyncEnv, Step, Tool
from palestra.errors import InfrastructureError, MissingExtra, Unsupported, UsageError
from palestra.foundation.confidential import HIDDEN
from palestra.tools import BadArguments, CallForm, tool
from palestra.trajectory import Content, Task, Text, ToolCall, ToolResult, text_of
from palestra.trajectory.calls import format_call, parse_results
from palestra.wrappers import ToolRules, UseTools


class Recorder(AsyncEnv):
    """Ends on the first move and remembers every one it was shown."""

    def __init__(self, first: Content = "Question.") -> None:
        self.first = first
        self.moves: list[str] = []
        self.closed = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return self.first, {"player": "white"}

    async def step(self, action: str) -> Step:
        self.moves.append(action)
        return Step("over", 1.0, True, False, {"success": True})

    async def close(self) -> None:
        self.closed += 1


@tool
async def double(n: int) -> int:
    """Twice as much."""
    return 2 * n


@tool
async def hang(stubborn: bool = False) -> str:
    """Never answers, and if it is stubborn does not listen to the first word of its end."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        if not stubborn:
            raise
    await asyncio.sleep(60)
    return ""


@tool
async def long() -> str:
    """Says much."""
    return "a" * 5000 + "\x1b[31m" + "z" * 5000


class Doing:
    """A tool of one's own without arguments. It does what a function does."""

    description, secrets = "", ("CANARY-0123456789",)
    parameters: Mapping[str, Any] = {"type": "object"}

    def __init__(self, do: Callable[[], Any], name: str = "doing") -> None:
        self.do, self.name = do, name

    async def __call__(self, /, **_: Any) -> Any:
        return self.do()


def raising(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


OWN = {
    "crash": raising(KeyError("boom")),
    "leak": raising(ValueError("401 for Authorization: Bearer CANARY-0123456789")),
    "unsure": lambda: ToolResult("not found", ok=False),
    "picky": raising(BadArguments("n must be even")),
    "silent": lambda: "text",
    "gives_up": raising(asyncio.CancelledError()),
}
TOOLS: list[Tool] = [double, hang, long, *(Doing(do, name) for name, do in OWN.items())]


def call(name: str, **arguments: Any) -> str:
    return format_call(ToolCall(name, arguments))


async def wrapped(rules: ToolRules | None = None, env: Recorder | None = None) -> tuple[UseTools, Recorder]:
    inner = env or Recorder()
    outer = UseTools(inner, TOOLS, rules)
    await outer.reset(seed=0)
    return outer, inner


async def test_a_call_is_answered_and_is_no_move() -> None:
    env, inner = await wrapped()
    step = await env.step(f"I will call {call('double', n=21)}")
    assert step[1:4] == (0.0, False, False)
    assert step.observation == '<tool_response name="double">\n42\n</tool_response>'
    answer = await env.step(format_call(ToolCall("double", {"n": 1}, "call_1")))
    assert [(result.call, result.text) for result in parse_results(str(answer.observation))] == [("call_1", "2")]
    assert answer.info["tools"]["totals"] == {"ok": 2}
    account = {"calls": [{"name": "double", "outcome": "ok"}], "totals": {"ok": 1}}
    assert step.info == {"player": "white", "role": "tool", "tools": account}
    assert inner.moves == []
    step = await env.step("my move")
    assert "role" not in step.info
    assert inner.moves == ["my move"]
    assert step.terminated
    assert step.info["tools"]["totals"] == {"ok": 2}


@pytest.mark.parametrize(
    ("action", "outcome", "told"),
    [
        ("<tool_call>{broken</tool_call>", "malformed", "JSON is malformed"),
        ("<tool_call>", "malformed", "never closed"),
        (call("triple", n=1), "unknown", "there are: double"),
        (call("double"), "arguments", "missing: n"),
        (call("double", n="1"), "arguments", "n must be of type integer"),
        (call("double", n=1, m=2), "arguments", "unknown: m"),
        (call("crash"), "crashed", "KeyError"),
        (call("leak"), "crashed", f"Bearer {HIDDEN}"),
        (call("silent"), "crashed", "the tool failed: it gave no result"),
        (call("gives_up"), "crashed", "the tool cancelled itself"),
        (call("picky"), "arguments", "wrong arguments: n must be even"),
        (call("unsure"), "failed", "not found"),
    ],
)
async def test_what_goes_wrong_is_told_and_is_no_move(action: str, outcome: str, told: str) -> None:
    env, inner = await wrapped()
    step = await env.step(action)
    assert step.info["tools"]["totals"] == {outcome: 1}
    assert told in str(step.observation)
    assert 'status="error"' in str(step.observation)
    assert not step.terminated
    assert inner.moves == []


@pytest.mark.parametrize("stubborn", [False, True])
async def test_deadlines_hold_even_against_the_stubborn(stubborn: bool) -> None:
    env, inner = await wrapped(ToolRules(seconds=0.2))
    step = await env.step(call("hang", stubborn=stubborn) + call("double", n=1))
    assert step.info["tools"]["totals"] == {"timeout": 1, "ok": 1}
    assert inner.moves == []
    assert len(env._left_behind) == stubborn
    left = list(env._left_behind)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert not env._left_behind


async def test_calls_of_one_message_run_side_by_side() -> None:
    both_here = asyncio.Barrier(2)

    @tool
    async def meet() -> str:
        await both_here.wait()
        return "met"

    env = UseTools(Recorder(), [meet], ToolRules(seconds=60.0))
    await env.reset(seed=0)
    step = await env.step(call("meet") + call("meet"))
    assert step.info["tools"]["totals"] == {"ok": 2}


async def test_budgets_limits_and_shaping() -> None:
    rules = ToolRules(budget=3, calls_per_action=2, call_reward=0.1, fault_reward=-0.5)
    env, _ = await wrapped(rules)
    step = await env.step(call("double", n=1) * 3)
    assert step.info["tools"]["totals"] == {"ok": 2, "refused": 1}
    assert step.reward == pytest.approx(0.2 - 0.5)
    step = await env.step(call("double", n=1) * 2)
    assert step.info["tools"]["totals"] == {"ok": 3, "refused": 2}
    assert "used up" in str(step.observation)
    await env.reset(seed=1)
    assert (await env.step(call("double", n=1))).info["tools"]["totals"] == {"ok": 1}


async def test_long_answers_lose_their_middle_and_their_control_characters() -> None:
    env, _ = await wrapped(ToolRules(output_characters=200))
    text = str((await env.step(call("long"))).observation)
    assert len(text) < 400
    assert "characters left out" in text
    assert text.count("a" * 100) == 1
    assert text.count("z" * 100) == 1
    assert "\x1b" not in str((await (await wrapped())[0].step(call("long"))).observation)


async def test_the_first_observation_tells_of_the_tools() -> None:
    env = UseTools(Recorder(), TOOLS, ToolRules(budget=2, forms=tuple(CallForm)))
    observation, info = await env.reset(seed=0)
    assert str(observation).endswith("Question.")
    assert "Twice as much" in str(observation)
    assert "You have 2 calls." in str(observation)
    assert [schema["name"] for schema in info["tools"]] == [made.name for made in TOOLS]
    mixed = UseTools(Recorder((Text("Look."),)), TOOLS)
    observation, _ = await mixed.reset(seed=0)
    assert "You have" not in text_of(observation)
    assert observation[1:] == (Text("Look."),)
    silent = UseTools(Recorder(), TOOLS, ToolRules(describe=False))
    assert (await silent.reset(seed=0))[0] == "Question."


async def test_tools_of_an_episode_are_opened_and_closed_with_it() -> None:
    log: list[str] = []

    class Counter:
        name, description = "count", ""
        parameters: Mapping[str, Any] = {"type": "object"}

        def for_episode(self, _shared: dict[Any, Any]) -> "Counter":
            log.append("open")
            return Counter()

        async def __call__(self, /, **arguments: Any) -> ToolResult:
            return ToolResult("1")

        async def close(self) -> None:
            log.append("close")

    class Lent(Counter):
        name = "lent"
        for_episode = None  # type: ignore[assignment]

    inner = Recorder()
    env = UseTools(inner, [Counter(), Lent()])
    await env.reset(seed=0)
    await env.step(call("count"))
    await env.reset(seed=1)
    await env.close()
    assert log == ["open", "close", "open", "close"]
    await env.reset(seed=2)
    with pytest.raises(Unsupported, match="the tool 'count' keeps state for it and has no fork"):
        await env.fork()
    await env.close()
    assert inner.closed == 2


async def test_the_first_failure_of_the_machine_fails_the_episode() -> None:
    failing = [Doing(raising(InfrastructureError(f"{name} is down")), name) for name in ("first", "second")]
    env = UseTools(Recorder(), [*failing, double])
    await env.reset(seed=0)
    with pytest.raises(InfrastructureError, match="first is down"):
        await env.step(call("first") + call("second") + call("double", n=1))


async def test_a_cancelled_episode_cancels_its_calls() -> None:
    ended = asyncio.Event()

    @tool
    async def wait() -> str:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.set()
        return ""

    env = UseTools(Recorder(), [wait])
    await env.reset(seed=0)
    task = asyncio.create_task(env.step(call("wait")))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert ended.is_set()
    ended.clear()
    env = UseTools(Recorder(), [wait], ToolRules(seconds=0.01))
    await env.reset(seed=0)
    await env.step(call("wait"))
    assert ended.is_set()
    assert not env._left_behind


def test_rules_and_names_are_checked() -> None:
    assert UseTools(Recorder(), TOOLS).totals == {}
    assert UseTools(Recorder(), TOOLS).rules == ToolRules(
        forms=(CallForm.TOOL_CALL,),
        budget=None,
        calls_per_action=8,
        seconds=30.0,
        output_characters=8000,
        call_reward=0.0,
        fault_reward=0.0,
        describe=True,
    )
    for wrong in ({"seconds": 0}, {"calls_per_action": 0}, {"forms": ()}, {"output_characters": 1}):
        with pytest.raises(UsageError):
            ToolRules(**wrong)
    with pytest.raises(UsageError, match="names of their own"):
        UseTools(Recorder(), [double, double])
    with pytest.raises(UsageError, match="names of their own"):
        UseTools(Recorder(), [])


_pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<python>", "</python>", "```python\n", "\n```", call("double", n=1), "text"]
)


@settings(max_examples=50)
@given(st.lists(_pieces, max_size=6).map("".join))
def test_no_attempt_at_a_call_ever_reaches_the_environment(action: str) -> None:
    async def play() -> tuple[list[str], Step]:
        env, inner = await wrapped(ToolRules(forms=tuple(CallForm)))
        return inner.moves, await env.step(action)

    moves, step = asyncio.run(play())
    meant = any(opening in action for opening in ("<tool_call>", "<python>", "```python\n"))
    assert moves == ([] if meant else [action])
    assert step.terminated is not meant


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "used up") for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN)),
        MissingExtra("pip install something"),
        ExceptionGroup("several", [ValueError(), OSError(errno.EMFILE, "used up")]),
    ],
    ids=repr,
)
async def test_a_machine_that_is_used_up_is_not_told_to_the_agent(error: BaseException) -> None:
    env = UseTools(Recorder(), [Doing(raising(error))])
    await env.reset()
    with pytest.raises(InfrastructureError, match="the tool 'doing' is out of order"):
        await env.step(call("doing"))


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "no") for number in (errno.ENOENT, errno.EACCES, errno.EPIPE, errno.ECONNREFUSED)),
        UsageError("wrong"),
        ValueError("no"),
        TimeoutError("of the tool's own"),
        MemoryError(),
    ],
    ids=repr,
)
async def test_every_other_error_of_a_tool_is_told_to_the_agent(error: BaseException) -> None:
    env = UseTools(Recorder(), [Doing(raising(error))])
    await env.reset()
    step = await env.step(call("doing"))
    assert f"the tool failed: {type(error).__name__}" in str(step.observation)
    assert step.info["tools"]["totals"] == {"crashed": 1}


@pytest.mark.parametrize(("waited", "infrastructure"), [(0.026, True), (0.024, False), (None, False)])
async def test_a_deadline_is_infrastructure_only_after_half_of_it_was_spent_waiting_for_the_machine(
    waited: float | None, infrastructure: bool
) -> None:
    class Queued(Doing):
        @property
        def waiting_since(self) -> float | None:
            return None if waited is None else asyncio.get_running_loop().time() - waited

        async def __call__(self, /, **_: Any) -> ToolResult:
            await asyncio.sleep(60)
            return ToolResult("")

    env = UseTools(Recorder(), [Queued(print, "queued")], ToolRules(seconds=0.05))
    await env.reset()
    if infrastructure:
        with pytest.raises(InfrastructureError, match="did not begin"):
            await env.step(call("queued"))
    else:
        assert (await env.step(call("queued"))).info["tools"]["totals"] == {"timeout": 1}
