"""verl's own ``AgentLoopWorker`` on a CPU: what it passes to the trainer are the tokens of the trajectories."""

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
import verl
from hydra import compose, initialize_config_dir

from palestra import StopReason, Task, Trajectory
from palestra.bridges import verl as bridge
from palestra.errors import InfrastructureError, UsageError
from tests.bridges.abandoned import EPISODES, HELD, Silent, all_closed, cut_off
from tests.bridges.bridging import (
    MAX_TOKENS,
    WHOLE,
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
        "_target_": "palestra.bridges.verl.PalestraAgentLoop",
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


def generated(worker: Any, tasks: list[Task]) -> Any:
    return run(worker.generate_sequences(rows_for(tasks)))


def rows_for(tasks: list[Task]) -> Any:
    from verl.protocol import DataProto

    rows = bridge.task_rows(tasks)
    columns: dict[str, Any] = {name: np.empty(len(rows), dtype=object) for name in ("task", "agent_name", "raw_prompt")}
    for at, row in enumerate(rows):
        columns["task"][at], columns["agent_name"][at], columns["raw_prompt"][at] = (
            row["task"],
            row["agent_name"],
            row["prompt"],
        )
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


def ours(tasks: list[Task], tokenizer: Any) -> list[Trajectory]:
    played = expected(tasks, tokenizer)
    assert max(len(one.segments[0].ids) - one.segments[0].spans[0].start for one in played) <= RESPONSE
    return played


def test_two_hundred_episodes_arrive_token_by_token(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    tasks = rough_tasks(200, WHOLE)
    working = worker(folder, tokenizer, tmp_path)
    output = generated(working, tasks)
    played = ours(tasks, tokenizer)
    assert_rough(played, failures=False)
    for row, one in zip(rows_of(output.batch), played, strict=True):
        compare([row], one)
    assert len({name for name, _ in working.llm_client.asked}) == 200, "an episode has one request id"
    scores = output.batch["rm_scores"]
    assert scores.sum(1).tolist() == pytest.approx([one.reward for one in played], abs=1e-6)
    assert all(row.mask[int(at)] for row, one in zip(rows_of(output.batch), scores, strict=True) for at in one.nonzero())


def test_a_failed_episode_is_raised_or_masked_but_no_zero_is_trained(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    tasks = rough_tasks(200)
    with pytest.raises(InfrastructureError, match=r"cannot record an episode without a reward.*broken on purpose"):
        generated(worker(folder, tokenizer, tmp_path, options="{retries: 0}"), tasks)
    masked = generated(worker(folder, tokenizer, tmp_path, options="{retries: 0}", failed="mask"), tasks).batch
    played = ours(tasks, tokenizer)
    assert_rough(played)
    for row, one in zip(rows_of(masked), played, strict=True):
        if one.stop.failed:
            assert not any(row.mask)
        else:
            compare([row], one)


def test_a_long_episode_ends_where_verl_has_no_room(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    working, room = worker(folder, tokenizer, tmp_path), 40
    working.rollout_config.response_length = working.config.actor_rollout_ref.rollout.response_length = room
    tasks = rough_tasks(200, WHOLE)
    batch = generated(working, tasks).batch
    assert batch["responses"].shape[1] == room
    overflowed = 0
    for row, task in zip(rows_of(batch), tasks, strict=True):
        # The response may have ``room`` tokens, so the context of each episode has another length.
        (one,) = expected([task], tokenizer, context_length=len(row.prompt) + room)
        compare([row], one)
        overflowed += one.stop is StopReason.CONTEXT_OVERFLOW
    assert overflowed > 10


def test_several_segments_are_refused(folder: Path, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "appending_renderer", Forgetting)
    with pytest.raises(UsageError, match="verl takes one sequence per episode"):
        generated(worker(folder, tokenizer, tmp_path), rough_tasks(8, WHOLE))


def test_a_thousand_episodes_that_verl_abandons_leave_nothing(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    working = worker(folder, tokenizer, tmp_path)
    generated(working, rough_tasks(1, WHOLE))  # loads what verl loads once
    silent = working.llm_client.generate = Silent()

    async def abandon() -> None:
        tasks = [Task(HELD, seed) for seed in range(EPISODES)]
        await cut_off(working.generate_sequences(rows_for(tasks)), silent)

    with all_closed():
        run(abandon())
