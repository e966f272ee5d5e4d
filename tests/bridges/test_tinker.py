"""The Tinker cookbook's own rollouts and data processing, with a scripted sampler: the data are those of the trajectories."""

import asyncio
import gc
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook")

from tinker_cookbook.completers import TinkerTokenCompleter
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl import types
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollout_strategy import MinViableGroup, RolloutStrategy
from tinker_cookbook.rl.rollouts import do_group_rollout

from palestra import StopReason, Task, Trajectory
from palestra.bridges import tinker as adapter
from palestra.bridges.tinker import GroupOptions, PalestraGroup, task_source
from tests.bridges.abandoned import EPISODES, HELD, Held, Silent, all_closed, cut_off
from tests.bridges.bridging import MAX_TOKENS, NARROW, ROUGH, Row, Speller, expected, rough_tasks, run
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_every_segment_arrives_token_by_token,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK

STOPS = {
    StopReason.TERMINATED: "completed",
    StopReason.TRUNCATED: "max_turns",
    StopReason.TURN_LIMIT: "max_turns",
    StopReason.LENGTH_CUT: "max_tokens",
}


class Sampler:
    """The part of Tinker's ``SamplingClient`` that ``TinkerTokenCompleter`` calls."""

    def __init__(self, tokenizer: Any) -> None:
        self.speller = Speller(tokenizer)

    async def sample_async(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        ids, logprobs, stopped, _ = self.speller(prompt.to_ints(), sampling_params.max_tokens)
        reason = "stop" if stopped else "length"
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=list(ids), logprobs=list(logprobs), stop_reason=reason)])


def completer(tokenizer: Any) -> Any:
    return TinkerTokenCompleter(Sampler(tokenizer), max_tokens=MAX_TOKENS)


def row_of(datum: Any, start: int) -> Row:
    """A ``Datum`` as a row whose prompt has ``start`` tokens: Tinker shifts inputs and targets by one."""
    columns = {key: value.to_torch().tolist() for key, value in datum.loss_fn_inputs.items()}
    ids = datum.model_input.to_ints()
    assert columns["target_tokens"][:-1] == ids[1:]
    mask = [int(value) for value in columns["mask"]]
    assert not any(mask[: start - 1])
    ids = [*ids, columns["target_tokens"][-1]]
    return Row(ids[:start], ids[start:], mask[start - 1 :], columns["logprobs"][start - 1 :])


async def rollouts(groups: Sequence[Any], tokenizer: Any, strategy: RolloutStrategy | None = None) -> list[Any]:
    found = []
    for group in groups:
        try:
            found.append(await do_group_rollout(pickle.loads(pickle.dumps(group)), completer(tokenizer), strategy))  # noqa: S301
        except AllTrajectoriesFailedError:
            found.append(None)
    return found


class Tinker(Bridge):
    """Drops a group that has fewer than one success. A retry of a task that is broken fails again."""

    def __init__(self, tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(tokenizer)
        self.folder, self.monkeypatch = folder, monkeypatch

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        if renderer is not None:
            self.monkeypatch.setattr(adapter, "_renderer", lambda _: renderer)
        source = task_source(tasks, GroupOptions(str(self.folder), size=1), groups=8, held_out=tasks[:3])
        train, held_out = run(source())
        assert (len(train), len(held_out)) == (-(-len(tasks) // 8), 1)
        groups = [group for at in range(len(train)) for group in train.get_batch(at)]
        assert all(isinstance(group, types.EnvGroupBuilder) for group in groups)
        self.groups = run(rollouts(groups, self.tokenizer, MinViableGroup(min_successful=1, max_retries=1)))
        return [None if group is None else self.received(group) for group in self.groups]

    def received(self, group: Any) -> Received:
        data, _ = assemble_training_data([group], compute_advantages([group]))

        def rows(one: Trajectory) -> list[Row]:
            return [row_of(datum, segment.spans[0].start) for datum, segment in zip(data, one.segments, strict=True)]

        return Received(rows, group.get_total_rewards()[0])

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        for group, one in zip(self.groups, played, strict=True):
            if group is not None:
                (trajectory,) = group.trajectories_G
                assert [step.reward for step in trajectory.transitions] == [turn.reward for turn in one.turns]
                assert trajectory.stop_reason == STOPS[one.stop]
                success = None if one.success is None else float(one.success)
                assert trajectory.transitions[-1].metrics.get("success") == success

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        options = GroupOptions(str(self.folder), size=100)
        model = completer(self.tokenizer)
        model.sampling_client.sample_async = silent
        groups = [PalestraGroup(task, options) for task in tasks[: EPISODES // 100]]
        await cut_off(asyncio.gather(*(do_group_rollout(group, model) for group in groups)), silent)


@pytest.fixture
def bridge(tokenizer: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tinker:
    return Tinker(tokenizer, folder, monkeypatch)


def test_a_failed_member_is_neither_in_the_mean_of_its_group_nor_a_zero(folder: Path, tokenizer: Any) -> None:
    tasks = rough_tasks(64)
    broken, *_ = (one.task.seed for one in expected(tasks, tokenizer) if one.stop.failed)

    class Mixed(PalestraGroup):
        """Four tasks in one group, one of which is broken."""

        async def make_envs(self) -> list[Any]:
            self.made += (envs := [adapter.PalestraEnv(Task(ROUGH, seed), self.options) for seed in (0, 1, 2, broken)])
            return envs

    group = Mixed(Task(ROUGH, 0), GroupOptions(str(folder)))
    found = run(do_group_rollout(group, completer(tokenizer), MinViableGroup(min_successful=3, max_retries=0)))
    assert [error.error_type for error in found.rollout_errors] == ["RuntimeError"]
    assert len(found.get_total_rewards()) == 3
    with pytest.raises(RuntimeError, match="broken on purpose"):
        run(do_group_rollout(Mixed(Task(ROUGH, 0), GroupOptions(str(folder))), completer(tokenizer)))


def test_limits_end_an_episode_and_say_why(folder: Path, tokenizer: Any) -> None:
    first = next(one for one in expected(rough_tasks(20), tokenizer) if len(one.turns) > 2 and not one.stop.failed)

    def stopped(**limits: Any) -> tuple[str, int]:
        group = PalestraGroup(first.task, GroupOptions(str(folder), 1, **limits))
        (trajectory,) = run(do_group_rollout(group, completer(tokenizer))).trajectories_G
        return trajectory.stop_reason, len(trajectory.transitions)

    assert stopped()[1] == len(first.turns)
    assert stopped(max_turns=2) == ("max_turns", 2)
    assert stopped(context_length=10) == ("max_tokens", 1)
    length = first.segments[0].spans[0].start
    assert stopped(context_length=length) == ("context_overflow", 1)


def test_two_hundred_episodes_end_where_the_context_is_full(folder: Path, tokenizer: Any) -> None:
    """Tinker limits the prompt, and Palestra prompt and reply: Tinker's episodes are ours up to the first prompt too long."""
    tasks = [task for task in rough_tasks(200) if task.seed % 8 != 7]
    limit = NARROW - MAX_TOKENS
    groups = [PalestraGroup(task, GroupOptions(str(folder), size=1, context_length=limit)) for task in tasks]
    overflowed = 0
    for found, one in zip(run(rollouts(groups, tokenizer)), expected(tasks, tokenizer), strict=True):
        (segment,) = one.segments
        kept = [span for span in segment.spans if span.start <= limit]
        (trajectory,) = found.trajectories_G
        assert len(trajectory.transitions) == len(kept)
        for step, span, turn in zip(trajectory.transitions, kept, one.turns, strict=False):
            assert step.ob.to_ints() == segment.ids[: span.start].tolist()
            assert list(step.ac.tokens) == segment.ids[span.start : span.stop].tolist()
            assert step.reward == turn.reward
        full = len(kept) < len(segment.spans)
        assert trajectory.stop_reason == ("context_overflow" if full else STOPS[one.stop])
        overflowed += full
    assert overflowed > 10


def test_a_thousand_environments_that_are_dropped_without_a_cleanup_leave_nothing(folder: Path) -> None:
    group = PalestraGroup(Task(HELD, 0), GroupOptions(str(folder), size=EPISODES))

    async def abandon() -> None:
        for env in await group.make_envs():
            await env.initial_observation()
        assert len(Held.open) == EPISODES
        group.made.clear()

    async def clean() -> None:
        for env in await group.make_envs():
            await env.initial_observation()
        await group.cleanup()
        assert not Held.open
        await group.cleanup()

    with all_closed():
        run(abandon())
        gc.collect()
    with all_closed():
        run(clean())
