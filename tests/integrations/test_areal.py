"""AReaL's own ``WorkflowExecutor`` runs the workflow: the tensors that it collects are those of the trajectories."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("areal")

from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig
from areal.api.io_struct import ModelResponse
from areal.infra import WorkflowExecutor

from palestra import Task, Trajectory
from palestra.integrations import areal as bridge
from tests.integrations.abandoned import EPISODES, HELD, Silent, all_closed
from tests.integrations.bridging import (
    MAX_TOKENS,
    NARROW,
    Forgetting,
    Row,
    Speller,
    assert_rough,
    compare,
    compare_segments,
    expected,
    rough_tasks,
    run,
    wait_for,
)

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


@pytest.fixture
def gconfig() -> GenerationHyperparameters:
    return GenerationHyperparameters(max_new_tokens=MAX_TOKENS, max_tokens=NARROW)


class Sampler:
    """AReaL's inference engine. Its weights change in the middle of every reply."""

    def __init__(self, tokenizer: Any) -> None:
        self.model, self.tokenizer = Speller(tokenizer), tokenizer
        self.rids: set[str] = set()

    def get_version(self) -> int:
        return 3

    async def agenerate(self, request: Any) -> ModelResponse:
        self.rids.add(request.rid)
        ids, logprobs, stopped, _ = self.model(request.input_ids, request.gconfig.max_new_tokens)
        return ModelResponse(
            input_tokens=request.input_ids,
            output_tokens=list(ids),
            output_logprobs=list(logprobs),
            output_versions=versions_of(len(ids)),
            stop_reason="stop" if stopped else "length",
            tokenizer=self.tokenizer,
        )


def versions_of(count: int) -> list[int]:
    return [2] * (count // 2) + [3] * (count - count // 2)


@pytest.fixture
def sampler(tokenizer: Any) -> Sampler:
    return Sampler(tokenizer)


@pytest.fixture
def executor(sampler: Sampler) -> Iterator[WorkflowExecutor]:
    made = executor_of(sampler, 16)
    yield made
    made.destroy()


def executor_of(sampler: Sampler, most: int) -> WorkflowExecutor:
    """AReaL's executor, with its threads: it plays up to ``most`` episodes at once."""
    config = InferenceEngineConfig(
        consumer_batch_size=8, max_concurrent_rollouts=most, max_head_offpolicyness=1000, check_trajectory_format=True
    )
    made = WorkflowExecutor(config, sampler)
    made.initialize(logging.getLogger("areal"), train_data_parallel_size=1)
    return made


def rows_of(tensors: dict[str, Any]) -> list[Row]:
    rows = []
    for at in range(len(tensors["input_ids"])):
        there = tensors["attention_mask"][at].bool()
        ids, mask, logprobs = (tensors[name][at][there].tolist() for name in ("input_ids", "loss_mask", "logprobs"))
        start = mask.index(1)
        rows.append(Row(ids[:start], ids[start:], mask[start:], logprobs[start:]))
    return rows


def test_two_hundred_episodes_arrive_token_by_token_and_failed_ones_are_rejected(
    executor: WorkflowExecutor, sampler: Sampler, gconfig: GenerationHyperparameters, folder: Path, tokenizer: Any
) -> None:
    tasks = rough_tasks(200)
    played = expected(tasks, tokenizer, context_length=NARROW)
    assert_rough(played, overflow=True)
    workflow = bridge.PalestraWorkflow(gconfig, str(folder), retries=0)
    collected = executor.rollout_batch(bridge.task_rows(tasks), workflow)
    kept = [one for one in played if not one.stop.failed]
    assert len(collected) == len(kept) < len(played)
    assert len(sampler.rids) == len(played), "one request id per episode"
    found = {tuple(row.prompt): (row, tensors) for tensors in collected for row in rows_of(tensors)}
    ordered = [found[tuple(one.segments[0].ids[: one.segments[0].spans[0].start].tolist())] for one in kept]
    compare([row for row, _ in ordered], kept)
    for (_, tensors), one in zip(ordered, kept, strict=True):
        assert tensors["rewards"].tolist() == pytest.approx([one.reward])
        assert tensors["versions"][0].tolist() == expected_versions(one)


def expected_versions(played: Trajectory) -> list[int]:
    (segment,) = played.segments
    versions = [-1] * len(segment.ids)
    for span in segment.spans:
        versions[span.start : span.stop] = versions_of(span.stop - span.start)
    return versions


def test_every_segment_becomes_a_row_token_by_token(
    executor: WorkflowExecutor, gconfig: GenerationHyperparameters, tokenizer: Any
) -> None:
    tasks, renderer = rough_tasks(200), Forgetting(tokenizer)
    played = [one for one in expected(tasks, tokenizer, context_length=NARROW, renderer=renderer) if not one.stop.failed]
    workflow = bridge.PalestraWorkflow(gconfig, tokenizer, renderer=renderer, retries=0)
    collected = executor.rollout_batch(bridge.task_rows(tasks), workflow)
    found = {tuple(rows[0].prompt): (rows, tensors) for tensors in collected for rows in [rows_of(tensors)]}
    assert len(found) == len(played)
    for one in played:
        rows, tensors = found[tuple(one.segments[0].ids[: one.segments[0].spans[0].start].tolist())]
        compare_segments(rows, one)
        assert tensors["rewards"].tolist() == pytest.approx([one.reward] * len(one.segments))
    assert max(len(one.segments) for one in played) > 2


def test_areal_finds_the_workflow_by_its_name(sampler: Sampler, gconfig: GenerationHyperparameters, folder: Path) -> None:
    from areal.infra.remote_inf_engine import RemoteInfEngine

    name = "palestra.integrations.areal.PalestraWorkflow"
    options = {"gconfig": gconfig, "tokenizer": str(folder), "max_turns": 1}
    found = RemoteInfEngine._resolve_workflow(object.__new__(RemoteInfEngine), name, options)
    assert type(found) is bridge.PalestraWorkflow
    tensors = run(found.arun_episode(sampler, bridge.task_rows(rough_tasks(1))[0]))
    assert tensors["input_ids"].shape == tensors["logprobs"].shape


def test_a_thousand_episodes_that_areal_abandons_leave_nothing(
    sampler: Sampler, gconfig: GenerationHyperparameters, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = bridge.PalestraWorkflow(gconfig, tokenizer)
    executor = executor_of(sampler, EPISODES)
    executor.rollout_batch(bridge.task_rows(rough_tasks(1)), workflow)  # loads what AReaL loads once
    silent = Silent()
    monkeypatch.setattr(sampler, "agenerate", silent)
    with all_closed():
        for row in bridge.task_rows(Task(HELD, seed) for seed in range(EPISODES)):
            executor.submit(row, workflow)
        wait_for(lambda: silent.asked >= EPISODES)
        executor.destroy()
