"""verl's own ``AgentLoopWorker`` on a CPU: what it passes to the trainer are the tokens of the trajectories."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir

from palestra import StopReason, Task, Trajectory
from palestra.errors import InfrastructureError, UsageError
from palestra.integrations import verl as adapter
from tests.integrations.abandoned import Silent, cut_off
from tests.integrations.bridging import MAX_TOKENS, WHOLE, Forgetting, Row, Speller, compare, expected, rough_tasks, run
from tests.integrations.contract import (
    FRAMEWORK,
    Bridge,
    Received,
    test_a_thousand_abandoned_episodes_leave_nothing,  # noqa: F401
    test_two_hundred_episodes_arrive_token_by_token,  # noqa: F401
)

pytestmark = FRAMEWORK

PROMPT, RESPONSE = 128, 256


class Server:
    """The LLM client of verl, with the scripted model behind it."""

    def __init__(self, tokenizer: Any) -> None:
        self.sample = Speller(tokenizer)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.asked.append((request_id, sampling_params))
        ids, logprobs, stopped, _version = self.sample(prompt_ids, sampling_params["max_tokens"])
        return TokenOutput(token_ids=ids, log_probs=logprobs, stop_reason="completed" if stopped else "length")


def worker(folder: Path, tokenizer: Any, tmp_path: Path, **settings: Any) -> Any:
    """Make verl's worker with its own configuration, and the agent loop named in a YAML file, as a user does it."""
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    lines = {
        "name": "palestra",
        "_target_": "palestra.integrations.verl.PalestraAgentLoop",
        "max_tokens": MAX_TOKENS,
        **settings,
    }
    loops = tmp_path / "loops.yaml"
    loops.write_text("- " + "\n  ".join(f"{key}: {value}" for key, value in lines.items()) + "\n")
    rollout = "actor_rollout_ref.rollout"
    overrides = [
        f"actor_rollout_ref.model.path={folder}",
        f"{rollout}.name=vllm",
        f"{rollout}.prompt_length={PROMPT}",
        f"{rollout}.response_length={RESPONSE}",
        f"{rollout}.calculate_log_probs=true",
        f"{rollout}.agent.agent_loop_config_path={loops}",
        "data.train_files=none",
        "data.val_files=none",
    ]
    with initialize_config_dir(os.path.join(os.path.dirname(verl.__file__), "trainer", "config"), version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    return AgentLoopWorker(config, Server(tokenizer))


def rows_for(tasks: Sequence[Task]) -> Any:
    from verl.protocol import DataProto

    rows = adapter.task_rows(tasks)
    columns: dict[str, Any] = {name: np.empty(len(rows), dtype=object) for name in ("task", "agent_name", "raw_prompt")}
    for at, row in enumerate(rows):
        for name, column in columns.items():
            column[at] = row[name.removeprefix("raw_")]
    return DataProto.from_dict(tensors={"dummy": torch.zeros(len(rows), 1)}, non_tensors=columns)


def rows_of(batch: Any) -> list[Row]:
    """The sequences without verl's padding."""
    rows = []
    for at in range(len(batch["prompts"])):
        before = batch["attention_mask"][at][:PROMPT].bool()
        after = batch["attention_mask"][at][PROMPT:].bool()
        columns = ("responses", "response_mask", "rollout_log_probs")
        rows.append(Row(batch["prompts"][at][before].tolist(), *(batch[name][at][after].tolist() for name in columns)))
    return rows


class Verl(Bridge):
    """Raises a failed episode; or, with ``failed: mask``, keeps it without a trained token."""

    failures = False

    def __init__(self, tokenizer: Any, folder: Path, tmp_path: Path) -> None:
        super().__init__(tokenizer)
        self.folders = folder, tmp_path

    def worker(self, **settings: Any) -> Any:
        folder, tmp_path = self.folders
        return worker(folder, self.tokenizer, tmp_path, **settings)

    def generated(self, tasks: Sequence[Task], **settings: Any) -> Any:
        return run(self.worker(**settings).generate_sequences(rows_for(tasks))).batch

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        working = self.worker()
        self.batch = run(working.generate_sequences(rows_for(tasks))).batch
        assert len({name for name, _ in working.llm_client.asked}) == len(tasks), "an episode has one request id"
        rewards = self.batch["rm_scores"].sum(1).tolist()
        return [Received([row], reward) for row, reward in zip(rows_of(self.batch), rewards, strict=True)]

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        for row, scores in zip(rows_of(self.batch), self.batch["rm_scores"], strict=True):
            assert all(row.mask[int(at)] for at in scores.nonzero())

    async def abandon(self, tasks: Sequence[Task], silent: Silent) -> None:
        working = self.worker()
        working.llm_client.generate = silent
        await cut_off(working.generate_sequences(rows_for(tasks)), silent)


@pytest.fixture
def bridge(tokenizer: Any, folder: Path, tmp_path: Path) -> Verl:
    return Verl(tokenizer, folder, tmp_path)


def test_a_failed_episode_is_raised_or_masked_but_no_zero_is_trained(bridge: Verl) -> None:
    tasks = rough_tasks(40)
    with pytest.raises(InfrastructureError, match=r"cannot record an episode without a reward.*broken on purpose"):
        bridge.generated(tasks, options="{retries: 0}")
    masked = bridge.generated(tasks, options="{retries: 0}", failed="mask")
    played = bridge.expected(tasks)
    assert any(one.stop.failed for one in played)
    for row, one in zip(rows_of(masked), played, strict=True):
        if one.stop.failed:
            assert not any(row.mask)
        else:
            compare([row], one)


def test_a_long_episode_ends_where_verl_has_no_room(bridge: Verl) -> None:
    working, room = bridge.worker(), 40
    working.rollout_config.response_length = working.config.actor_rollout_ref.rollout.response_length = room
    tasks = rough_tasks(200, WHOLE)
    batch = run(working.generate_sequences(rows_for(tasks))).batch
    assert batch["responses"].shape[1] == room
    overflowed = 0
    for row, task in zip(rows_of(batch), tasks, strict=True):
        # The response may have ``room`` tokens, so the context of each episode has another length.
        (one,) = expected([task], bridge.tokenizer, context_length=len(row.prompt) + room)
        compare([row], one)
        overflowed += one.stop is StopReason.CONTEXT_OVERFLOW
    assert overflowed > 10


def test_several_segments_are_refused(bridge: Verl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "appending_renderer", Forgetting)
    with pytest.raises(UsageError, match="verl takes one sequence per episode"):
        bridge.generated(rough_tasks(8, WHOLE))
