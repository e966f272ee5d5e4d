"""A recipe names an agent, and its calls are trained."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from palestra.errors import UsageError
from palestra.rollouts import read_trajectories
from palestra.training import TrainConfig, train
from palestra.training.record import read_metrics
from palestra.trajectory import AgentRecord

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def config(folder: Path, /, **changes: Any) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(folder)},
        "envs": {"game:GuessTheNumber-v0-easy": 1.0},
        "steps": 2,
        "play": {"tasks": 2, "group_size": 2, "max_tokens": 16},
        "agent": {"program": "tests.agents.programs:stepping"},
        "samples": 2,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


@pytest.mark.slow
def test_an_agent_is_trained_and_the_preflight_states_the_capture(tiny_model: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    train(config(tiny_model, evaluation={"every": 2, "n": 2}), tmp_path, say=notes.append)
    assert any("records token ids and log-probs of its calls" in line for line in notes), notes
    assert ["evaluation/score" in line for line in read_metrics(tmp_path)] == [False, True]
    played = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    assert played
    for trajectory in played:
        assert isinstance(trajectory.agent, AgentRecord)
        sampled = sum(len(segment.logprobs) for segment in trajectory.segments)
        assert sampled == sum(call.tokens for call in trajectory.agent.calls if call.role == "agent")
        assert all(np.isfinite(segment.logprobs).all() for segment in trajectory.segments)


def test_an_agent_and_a_policy_cannot_both_play(tiny_model: Path) -> None:
    with pytest.raises((UsageError, msgspec.ValidationError), match="leave one of them out"):
        config(tiny_model, policy="react")


def test_a_misspelled_agent_is_found_before_a_model_is_loaded(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_such_agent"):
        train(config(tiny_model, agent={"program": "no_such_agent:run"}), tmp_path)
