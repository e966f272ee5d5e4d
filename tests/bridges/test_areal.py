"""AReaL's own ``WorkflowExecutor`` runs the workflow: the tensors that it collects are those of the trajectories."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("areal")

from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig
from areal.api.io_struct import ModelResponse
from areal.infra import WorkflowExecutor

from palestra import Task, Trajectory
from palestra.bridges import areal as adapter
from tests.bridges.abandoned import EPISODES, Silent
from tests.bridges.bridging import MAX_TOKENS, NARROW, Row, Speller, rough_tasks, run, wait_for
from tests.bridges.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_every_segment_arrives_token_by_token,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK


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


def rows_of(tensors: dict[str, Any]) -> list[Row]:
    rows = []
    for at in range(len(tensors["input_ids"])):
        there = tensors["attention_mask"][at].bool()
        ids, mask, logprobs = (tensors[name][at][there].tolist() for name in ("input_ids", "loss_mask", "logprobs"))
        start = mask.index(1)
        rows.append(Row(ids[:start], ids[start:], mask[start:], logprobs[start:]))
    return rows


class AReaL(Bridge):
    """Rejects failed episodes, and returns the others in any order."""

    context = NARROW
    gconfig = GenerationHyperparameters(max_new_tokens=MAX_TOKENS, max_tokens=NARROW)

    def executor(self, most: int) -> WorkflowExecutor:
        """AReaL's executor, with its threads: it plays up to ``most`` episodes at once."""
        config = InferenceEngineConfig(
            consumer_batch_size=8, max_concurrent_rollouts=most, max_head_offpolicyness=1000, check_trajectory_format=True
        )
        self.sampler = Sampler(self.tokenizer)
        made = WorkflowExecutor(config, self.sampler)
        made.initialize(logging.getLogger("areal"), train_data_parallel_size=1)
        return made

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        workflow = adapter.PalestraWorkflow(self.gconfig, self.tokenizer, renderer=renderer, retries=0)
        executor = self.executor(16)
        collected = executor.rollout_batch(adapter.task_rows(tasks), workflow)
        executor.destroy()
        assert len(self.sampler.rids) == len(tasks), "one request id per episode"
        found = {}
        self.versions = {}
        for tensors in collected:
            rows, rewards = rows_of(tensors), tensors["rewards"].tolist()
            assert len({*rewards}) == 1
            game = re.search(r"Game\s*(\d+)", self.tokenizer.decode(rows[0].prompt))
            assert game is not None
            found[int(game[1])] = Received(rows, rewards[0])
            self.versions[int(game[1])] = tensors["versions"].tolist()
        return [found.get(task.seed) for task in tasks]

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        for one in played:
            if one.stop.failed:
                continue
            for versions, segment in zip(self.versions[one.task.seed], one.segments, strict=True):
                expected = [-1] * len(versions)
                for span in segment.spans:
                    expected[span.start : span.stop] = versions_of(span.stop - span.start)
                assert versions == expected

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        executor = self.executor(EPISODES)
        self.sampler.agenerate = silent  # type: ignore[method-assign]
        workflow = adapter.PalestraWorkflow(self.gconfig, self.tokenizer)
        for row in adapter.task_rows(tasks):
            executor.submit(row, workflow)
        wait_for(lambda: silent.asked >= EPISODES)
        executor.destroy()


@pytest.fixture
def bridge(tokenizer: Any) -> AReaL:
    return AReaL(tokenizer)


def test_areal_finds_the_workflow_by_its_name(bridge: AReaL, folder: Path) -> None:
    from areal.infra.remote_inf_engine import RemoteInfEngine

    name = "palestra.bridges.areal.PalestraWorkflow"
    options = {"gconfig": bridge.gconfig, "tokenizer": str(folder), "max_turns": 1}
    found = RemoteInfEngine._resolve_workflow(object.__new__(RemoteInfEngine), name, options)
    assert type(found) is adapter.PalestraWorkflow
    tensors = run(found.arun_episode(Sampler(bridge.tokenizer), adapter.task_rows(rough_tasks(1))[0]))
    assert tensors["input_ids"].shape == tensors["logprobs"].shape
