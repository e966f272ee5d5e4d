"""AReaL's own ``WorkflowExecutor`` runs the workflow: the tensors that it collects are those of the trajectories."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("areal")

import transformers
from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig
from areal.api.io_struct import ModelResponse
from areal.infra import WorkflowExecutor

from palestra import Trajectory
from palestra.integrations import areal as bridge
from palestra.models.tiny import build_tiny
from tests.integrations.bridging import (
    CONTEXT,
    GAME,
    MAX_TOKENS,
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("model") / "tiny", envs=GAME)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def gconfig() -> GenerationHyperparameters:
    return GenerationHyperparameters(max_new_tokens=MAX_TOKENS, max_tokens=CONTEXT)


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
    config = InferenceEngineConfig(
        consumer_batch_size=8, max_concurrent_rollouts=16, max_head_offpolicyness=1000, check_trajectory_format=True
    )
    made = WorkflowExecutor(config, sampler)
    made.initialize(logging.getLogger("areal"), train_data_parallel_size=1)
    yield made
    made.destroy()


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
    played = expected(tasks, tokenizer)
    assert_rough(played)
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


def test_several_segments_become_several_rows(
    executor: WorkflowExecutor, gconfig: GenerationHyperparameters, tokenizer: Any
) -> None:
    workflow = bridge.PalestraWorkflow(gconfig, tokenizer, renderer=Forgetting(tokenizer))
    collected = executor.rollout_batch(bridge.task_rows(rough_tasks(4)), workflow)
    rows = [rows_of(tensors) for tensors in collected]
    assert max(map(len, rows)) > 1
    assert all(all(row.mask) for some in rows for row in some), "every turn stands alone"
    assert all(len(set(tensors["rewards"].tolist())) == 1 for tensors in collected)


def test_areal_finds_the_workflow_by_its_name(sampler: Sampler, gconfig: GenerationHyperparameters, folder: Path) -> None:
    from areal.infra.remote_inf_engine import RemoteInfEngine

    name = "palestra.integrations.areal.PalestraWorkflow"
    options = {"gconfig": gconfig, "tokenizer": str(folder), "max_turns": 1}
    found = RemoteInfEngine._resolve_workflow(object.__new__(RemoteInfEngine), name, options)
    assert type(found) is bridge.PalestraWorkflow
    tensors = run(found.arun_episode(sampler, bridge.task_rows(rough_tasks(1))[0]))
    assert tensors["input_ids"].shape == tensors["logprobs"].shape
