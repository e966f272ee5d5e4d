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
from palestra.core import Sampling
from palestra.integrations import tinker as bridge
from palestra.integrations.tinker import GroupOptions, PalestraGroup, task_source
from palestra.policies.sampled import SampledPolicy
from palestra.rollout import play
from tests.integrations.abandoned import EPISODES, HELD, Held, Silent, all_closed, cut_off
from tests.integrations.bridging import (
    GAME,
    MAX_TOKENS,
    NARROW,
    ROUGH,
    Forgetting,
    Row,
    Speller,
    assert_rough,
    compare,
    expected,
    rough_tasks,
    run,
)

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

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


def rows_of(data: Sequence[Any], played: Sequence[Trajectory]) -> list[Row]:
    """Each ``Datum`` as a row: Tinker shifts inputs and targets by one."""
    rows = []
    for datum, one in zip(data, played, strict=True):
        columns = {key: value.to_torch().tolist() for key, value in datum.loss_fn_inputs.items()}
        ids = datum.model_input.to_ints()
        assert columns["target_tokens"][:-1] == ids[1:]
        start = one.segments[0].spans[0].start
        mask = [int(value) for value in columns["mask"]]
        assert not any(mask[: start - 1])
        whole = [*ids, columns["target_tokens"][-1]]
        rows.append(Row(whole[:start], whole[start:], mask[start - 1 :], columns["logprobs"][start - 1 :]))
    return rows


async def rollouts(groups: Sequence[Any], tokenizer: Any, strategy: RolloutStrategy | None = None) -> list[Any]:
    found = []
    for group in groups:
        try:
            found.append(await do_group_rollout(pickle.loads(pickle.dumps(group)), completer(tokenizer), strategy))  # noqa: S301
        except AllTrajectoriesFailedError:
            found.append(None)
    return found


def test_two_hundred_episodes_arrive_token_by_token_and_failed_ones_are_left_out(folder: Path, tokenizer: Any) -> None:
    tasks = rough_tasks(200)
    source = task_source(tasks, GroupOptions(str(folder), size=1), groups=8, held_out=tasks[:3])
    train, held_out = run(source())
    assert (len(train), len(held_out)) == (25, 1)
    groups = [group for at in range(len(train)) for group in train.get_batch(at)]
    assert all(isinstance(group, types.EnvGroupBuilder) for group in groups)
    # A group with fewer than one success is dropped. A retry of a task that is broken fails again.
    found = run(rollouts(groups, tokenizer, MinViableGroup(min_successful=1, max_retries=1)))
    played = expected(tasks, tokenizer)
    assert_rough(played)
    assert [group is None for group in found] == [one.stop.failed for one in played]
    kept = [group for group in found if group is not None]
    scored = [one for one in played if not one.stop.failed]
    data, places = assemble_training_data(kept, compute_advantages(kept))
    assert [place["group_idx"] for place in places] == list(range(len(scored)))
    compare(rows_of(data, scored), scored)
    for group, one in zip(kept, scored, strict=True):
        (trajectory,) = group.trajectories_G
        assert [step.reward for step in trajectory.transitions] == [turn.reward for turn in one.turns]
        assert trajectory.stop_reason == STOPS[one.stop]
        assert trajectory.transitions[-1].metrics.get("success") == (None if one.success is None else float(one.success))


def test_a_failed_member_is_neither_in_the_mean_of_its_group_nor_a_zero(folder: Path, tokenizer: Any) -> None:
    tasks = rough_tasks(64)
    broken, *_ = (one.task.seed for one in expected(tasks, tokenizer) if one.stop.failed)

    class Mixed(PalestraGroup):
        """Four tasks in one group, one of which is broken."""

        async def make_envs(self) -> list[Any]:
            self.made += (envs := [bridge.PalestraEnv(Task(ROUGH, seed), self.options) for seed in (0, 1, 2, broken)])
            return envs

    group = Mixed(Task(ROUGH, 0), GroupOptions(str(folder)))
    found = run(do_group_rollout(group, completer(tokenizer), MinViableGroup(min_successful=3, max_retries=0)))
    assert [error.error_type for error in found.rollout_errors] == ["RuntimeError"]
    assert len(found.get_total_rewards()) == 3
    with pytest.raises(RuntimeError, match="broken on purpose"):
        run(do_group_rollout(Mixed(Task(ROUGH, 0), GroupOptions(str(folder))), completer(tokenizer)))


def test_several_segments_become_several_data(folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Forgetting(tokenizer)
    monkeypatch.setattr(bridge, "_renderer", lambda _: renderer)
    tasks = [Task(GAME, seed) for seed in range(12)]

    async def both(task: Task) -> tuple[Any, Trajectory]:
        policy = SampledPolicy(renderer, Speller(tokenizer).engine(), Sampling(max_tokens=MAX_TOKENS))
        group = await do_group_rollout(PalestraGroup(task, GroupOptions(str(folder), size=1)), completer(tokenizer))
        return group, await play(task, policy)

    most = 0
    for task in tasks:
        group, one = run(both(task))
        data, _ = assemble_training_data([group], compute_advantages([group]))
        assert len(data) == len(one.segments)
        for datum, segment in zip(data, one.segments, strict=True):
            targets = datum.loss_fn_inputs["target_tokens"].to_torch().tolist()
            assert [datum.model_input.to_ints()[0], *targets] == segment.ids.tolist()
            assert datum.loss_fn_inputs["mask"].to_torch().tolist() == segment.mask[1:].astype(float).tolist()
        most = max(most, len(data))
    assert most > 2


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


def test_a_thousand_episodes_that_tinker_abandons_leave_nothing(folder: Path, tokenizer: Any) -> None:
    groups = [PalestraGroup(Task(HELD, seed), GroupOptions(str(folder), size=100)) for seed in range(EPISODES // 100)]
    model, silent = completer(tokenizer), Silent()
    model.sampling_client.sample_async = silent

    async def abandon() -> None:
        await cut_off(asyncio.gather(*(do_group_rollout(group, model) for group in groups)), silent)

    with all_closed():
        run(abandon())


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
