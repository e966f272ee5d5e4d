"""Agents as policies: exact tokens, deadlines, failures, and a clean end."""

import asyncio
import contextlib
import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.agents import programs
from tests.agents.test_gateway import STOP

from palestra.agents import CallBudget, Program
from palestra.core import Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints, decode_json, encode_json
from palestra.rollouts import rollout
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import AgentRecord, StopReason, Task, Trajectory

pytest.importorskip("uvicorn")  # without it, an episode records the failure of the gateway, and no test would be skipped
GAME = "game:GuessTheNumber-v0-easy"


def guess(prompt: Ints, sampling: Sampling) -> list[int]:
    turns = sum(token == STOP for token in prompt.tolist())
    return [*map(ord, f"\\boxed{{{turns}}}"), STOP]


def program(run: Any, **options: Any) -> Program:
    return Program(run, ScriptedEngine(guess), ByteRenderer(), **options)


async def play(policy: Any, n: int = 2, **options: Any) -> list[Trajectory]:
    return [trajectory async for trajectory in rollout(GAME, policy, n=n, **options)]


def in_order(played: list[Trajectory]) -> list[Trajectory]:
    return sorted(played, key=lambda trajectory: trajectory.group)


def check(trajectory: Trajectory) -> None:
    """Every action is the text of the tokens of its turn."""
    (segment,) = trajectory.segments
    for number, turn in enumerate(trajectory.turns):
        ids = segment.ids[segment.turns == number].tolist()
        assert "".join(chr(token) for token in ids if token != STOP) == turn.action


@pytest.mark.parametrize("run", [programs.stepping, "tests.agents.programs:stepping"])
async def test_an_async_program_plays_episodes_token_by_token(run: Any) -> None:
    policy = program(run)
    played = await play(policy, n=8)
    assert len(played) == 8
    for trajectory in played:
        assert trajectory.stop in (StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.TURN_LIMIT)
        assert trajectory.policy == "stepping"
        check(trajectory)
        calls = trajectory.agent.calls  # type: ignore[union-attr]
        assert [call.turn for call in calls] == list(range(len(trajectory.turns)))
        assert sum(turn.completion.usage.completion_tokens for turn in trajectory.turns if turn.completion.usage) == len(
            trajectory.segments[0].logprobs
        )
    assert (len(policy.gateway), policy.gateway.url) == (0, "")


@pytest.mark.parametrize("run", [programs.stepping, programs.with_helpers])
async def test_the_same_episode_has_the_same_digest_and_survives_a_file(run: Any) -> None:
    policy = program(run)
    copy = pickle.loads(pickle.dumps(policy))  # noqa: S301 - as a cluster sends it to a worker
    assert copy.gateway is not policy.gateway
    first, second = await play(policy, n=8), await play(copy, n=8)
    for trajectory, other in zip(in_order(first), in_order(second), strict=True):
        assert trajectory.digest() == other.digest()
        assert decode_json(encode_json(trajectory), Trajectory).digest() == trajectory.digest()


async def test_parquet_keeps_the_calls_of_an_agent(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from palestra.interchange import read_parquet, write_parquet

    played = await play(program(programs.stepping))
    write_parquet(played, tmp_path / "run.parquet")
    read = list(read_parquet(tmp_path / "run.parquet"))
    assert [encode_json(trajectory.agent) for trajectory in read] == [encode_json(trajectory.agent) for trajectory in played]


@pytest.mark.slow
async def test_plain_programs_play_in_workers_and_one_that_fails_is_a_failure_of_the_policy() -> None:
    for trajectory in await play(program("tests.agents.programs:plain"), n=3):
        assert not trajectory.stop.failed, trajectory.failures
        check(trajectory)
    (trajectory,) = await play(program(programs.answering), n=1)
    assert trajectory.turns[0].action == "\\boxed{1}"  # the text that a program returns
    assert trajectory.stop in (StopReason.TERMINATED, StopReason.EMPTY_COMPLETION)
    (trajectory,) = await play(program("tests.agents.programs:failing"), n=1)
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.failures[0].boundary == "policy"
    assert "KeyError: 'the agent is broken'" in trajectory.failures[0].message


@pytest.mark.slow
async def test_a_program_that_hangs_is_killed_at_the_deadline() -> None:
    (trajectory,) = await play(program("tests.agents.programs:sleeping", grace=0.1), n=1, deadline=5.0)
    assert (trajectory.stop, trajectory.reward) == (StopReason.DEADLINE, None)


async def test_an_async_program_that_hangs_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def hang(episode: Any) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cancelled.set()

    (trajectory,) = await play(program(hang, grace=0.05), n=1, deadline=2.0)
    assert trajectory.stop is StopReason.DEADLINE
    assert cancelled.is_set()


async def test_a_program_that_continues_after_the_end_is_stopped_and_not_recorded() -> None:
    async def eager(episode: Any) -> None:
        while True:
            await programs.stepping(episode)
            await asyncio.sleep(0.01)

    (trajectory,) = await play(program(eager, grace=0.1), n=1)
    assert not trajectory.stop.failed
    check(trajectory)


async def test_a_budget_stops_the_episode() -> None:
    async def quits_at_a_refusal(episode: Any) -> None:
        async with programs.chatting(episode) as asking:
            while "budget" not in (text := await asking([{"role": "user", "content": episode.observation}])):
                await episode.step(text)

    (trajectory,) = await play(program(quits_at_a_refusal, budget=CallBudget(calls=1)), n=1)
    assert trajectory.stop is StopReason.BUDGET
    assert len(trajectory.segments[0].spans) == 1


async def test_an_engine_that_fails_is_not_the_agent_s_fault() -> None:
    class Broken(ScriptedEngine):
        async def generate(self, *_: Any, **__: Any) -> Any:
            raise InfrastructureError("the server is away")

    policy = Program(programs.stepping, Broken(guess), ByteRenderer())
    (trajectory,) = await play(policy, n=1, retries=0)
    assert trajectory.stop is StopReason.ERROR
    assert trajectory.failures[0].boundary == "infrastructure"


async def test_parallel_steps_are_taken_one_after_the_other() -> None:
    async def parallel(episode: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for number in (1, 2):
                group.create_task(episode.step(f"\\boxed{{{number}}}"))

    (trajectory,) = [trajectory async for trajectory in rollout([Task(GAME, seed=5)], program(parallel))]
    assert [turn.action for turn in trajectory.turns][:2] == ["\\boxed{1}", "\\boxed{2}"]


async def test_leaving_a_rollout_stops_its_programs() -> None:
    policy = program(programs.stepping, grace=0.1)
    episodes = rollout(GAME, policy, n=50, concurrency=8)
    await anext(episodes)
    await episodes.aclose()
    assert (len(policy.gateway), policy.gateway.url) == (0, "")


async def test_a_program_is_stopped_although_its_engine_does_not_stop() -> None:
    released, stopped = asyncio.Event(), asyncio.Event()

    class Stubborn(ScriptedEngine):
        async def generate(self, *arguments: Any, **options: Any) -> Any:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()
            return await super().generate(*arguments, **options)

    async def asking(episode: Any) -> None:
        try:
            await programs.stepping(episode)
        finally:
            stopped.set()

    policy = Program(asking, Stubborn(guess), ByteRenderer())
    try:
        async with asyncio.timeout(20):
            (trajectory,) = await play(policy, n=1, deadline=0.5)
        assert trajectory.stop is StopReason.DEADLINE
        assert stopped.is_set()
        assert (len(policy.gateway), policy.gateway.url) == (0, "")
    finally:
        released.set()


async def test_an_episode_that_cannot_begin_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = program(programs.stepping)
    monkeypatch.setattr(policy, "_performance", lambda *_: [].pop())
    (trajectory,) = await play(policy, n=1, retries=0)
    assert "pop from empty list" in trajectory.failures[0].message
    assert (len(policy.gateway), policy.gateway.url) == (0, "")


def test_a_program_that_a_worker_cannot_import_is_refused() -> None:
    with pytest.raises(UsageError, match="worker process"):
        program(lambda episode: None)
    with pytest.raises(UsageError, match="with_tools"):
        Program(programs.stepping, ScriptedEngine(guess), SimpleNamespace())


async def _careful(episode: Any) -> None:
    """Asks for a title, then samples every action twice and takes the second."""
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    messages = [dict(message) for message in episode.messages]
    async with programs.chatting(episode) as asking:
        await asking([{"role": "user", "content": "A title, please."}])
        while not episode.ended:
            keys = [{"Idempotency-Key": f"{len(messages)} {number}"} for number in range(2)]
            replies = [await asking(messages, key, tools=tools) for key in keys]
            messages += [
                {"role": "assistant", "content": replies[1]},
                {"role": "user", "content": await episode.step(replies[1])},
            ]


@pytest.mark.parametrize("auxiliary", [False, True])
async def test_unused_replies_and_asides_are_kept_and_not_trained(auxiliary: bool) -> None:
    (trajectory,) = await play(program(_careful, auxiliary=auxiliary), n=1)
    record = trajectory.agent
    assert isinstance(record, AgentRecord)
    turns = len(trajectory.turns)
    roles = Counter(call.role for call in record.calls)
    # Two equal replies to one prompt: the later one continues, and the last pair was not continued at all.
    assert roles == {"auxiliary": 1, "discarded": turns, "agent": turns}
    trained = sum(len(segment.logprobs) for segment in trajectory.segments)
    kept = sum(len(branch.segment.logprobs) for branch in record.branches)
    assert trained + kept == sum(call.tokens for call in record.calls)
    assert Counter(branch.role for branch in record.branches).keys() == (
        {"discarded"} if auxiliary else {"discarded", "auxiliary"}
    )
    assert len(trajectory.segments) == 1 + auxiliary
