from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra import AsyncEnv, Image, Step, StopReason, Task, Text, Trajectory
from palestra.errors import UsageError
from palestra.tools import tool
from palestra.trajectory import Content, Phase, ToolCall, text_of
from palestra.trajectory.calls import format_call
from palestra.wrappers import KeepHistory, RecordTrajectory, TokenLimit, TurnLimit, UseTools, approximate_tokens


class Script(AsyncEnv):
    """Shows the given observations one after another, as plain tuples, which are steps too."""

    def __init__(self, observations: Sequence[Content], end: str = "terminated") -> None:
        self.observations = observations
        self.end = end
        self.closed = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self.turn = 0
        return self.observations[0], {"first": True}

    async def step(self, action: str) -> Step:
        self.turn += 1
        if action == "raise":
            raise KeyError("step went wrong")
        last = self.turn == len(self.observations) - 1
        return (  # type: ignore[return-value]
            self.observations[self.turn],
            1.0,
            last and self.end == "terminated",
            last and self.end == "truncated",
            {"turn": self.turn},
        )

    async def close(self) -> None:
        self.closed += 1


pieces = st.one_of(st.text(max_size=9), st.just((Text("look: "), Image(b"png"))))


@settings(max_examples=50, deadline=None)
@given(st.lists(pieces, min_size=2, max_size=8), st.none() | st.integers(0, 9))
async def test_the_task_statement_is_always_shown(shown: list[Content], window: int | None) -> None:
    env = KeepHistory(Script(["THE TASK", *shown]), window)
    for _ in range(2):  # a second episode starts from nothing
        observation, _info = await env.reset(seed=0)
        assert observation == "THE TASK"
        for turn, latest in enumerate(shown, start=1):
            step = await env.step(f"<move {turn}>")
            seen = text_of(step.observation)
            assert seen.startswith("THE TASK")
            assert seen.endswith(f"You: <move {turn}>\n\n{text_of(latest)}")
            kept = turn if window is None else min(turn, window + 1)
            assert [f"<move {i}>" in seen for i in range(1, turn + 1)] == [i > turn - kept for i in range(1, turn + 1)]
            assert (f"[{turn - kept} earlier turn" in seen) == (kept < turn)
            images = sum(not isinstance(one, str) for one in shown[turn - kept : turn])
            assert sum(isinstance(part, Image) for part in step.observation) == images


async def test_a_conversation_in_one_text_is_no_tools_result() -> None:
    @tool
    async def double(n: int) -> str:
        """Doubles."""
        return str(2 * n)

    env = KeepHistory(UseTools(Script(["THE TASK", "moved"]), [double]))
    await env.reset(seed=0)
    step = await env.step(format_call(ToolCall("double", {"n": 21})))
    assert "42" in text_of(step.observation)
    assert "role" not in step.info


def test_limits_and_windows_must_make_sense() -> None:
    with pytest.raises(UsageError, match="turns must not be negative, got -1"):
        KeepHistory(Script([]), -1)
    assert KeepHistory(Script([]), 0).turns == 0
    with pytest.raises(UsageError, match="turns must be at least 1, got 0"):
        TurnLimit(Script([]), 0)
    with pytest.raises(UsageError, match="tokens must be at least 1, got 0"):
        TokenLimit(Script([]), 0)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
async def test_a_turn_limit_cuts_and_says_why_unless_the_episode_ends_by_itself(end: str) -> None:
    env = TurnLimit(Script(["a", "b", "c", "d"], end), 2)
    for _ in range(2):
        await env.reset(seed=0)
        assert await env.step("x") == Step("b", 1.0, False, False, {"turn": 1})
        assert await env.step("x") == Step("c", 1.0, False, True, {"turn": 2, "stop_reason": StopReason.TURN_LIMIT})
    env = TurnLimit(Script(["a", "b"], end), 1)
    await env.reset(seed=0)
    assert await env.step("x") == Step("b", 1.0, end == "terminated", end == "truncated", {"turn": 1})


async def test_a_token_limit_counts_both_sides() -> None:
    env = TokenLimit(Script(["aaaa", "bb", "cc", "dd"]), 9, count=len)
    for _ in range(2):
        await env.reset(seed=0)
        assert not (await env.step("12")).truncated  # 4 + 2 + 2
        cut = await env.step("12")
        assert cut.truncated
        assert cut.info["stop_reason"] is StopReason.TOKEN_LIMIT
    assert approximate_tokens("") == 0
    assert approximate_tokens("12345") == 2
    assert approximate_tokens("\ud800") == 1


async def test_every_episode_of_a_foreign_loop_is_recorded_once() -> None:
    records: list[Trajectory] = []
    inner = Script(["a", "b", "c"])
    env = RecordTrajectory(inner, records.append)
    assert await env.reset(seed=1) == ("a", {"first": True})
    await env.step("x")
    await env.step("y")
    assert [record.stop for record in records] == [StopReason.TERMINATED]
    assert [(turn.observation, turn.action, turn.info) for turn in records[0].turns] == [
        ("a", "x", {"turn": 1}),
        ("b", "y", {"turn": 2}),
    ]
    assert (records[0].final_observation, records[0].info, records[0].task.seed) == ("c", {"first": True}, 1)
    await env.reset(seed=2)
    await env.step("x")
    await env.reset(seed=3)  # abandons the second
    await env.step("x")
    await env.close()  # abandons the third
    assert [(record.stop, record.task.seed) for record in records[1:]] == [(StopReason.TRUNCATED, 2), (StopReason.TRUNCATED, 3)]
    assert inner.closed == 1


async def test_a_cut_is_recorded_with_its_reason_and_a_failure_without_a_reward() -> None:
    records: list[Trajectory] = []
    env = RecordTrajectory(TurnLimit(Script(["a", "b", "c"]), 1), records.append)
    await env.reset(seed=1)
    await env.step("x")
    assert records.pop().stop is StopReason.TURN_LIMIT
    await env.reset(seed=1)
    with pytest.raises(KeyError):
        await env.step("raise")
    (record,) = records
    assert (record.stop, record.reward, record.failures[0].phase) == (StopReason.ERROR, None, Phase.STEP)
