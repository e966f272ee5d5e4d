"""Hostile environments in a training run: it finishes, accounts for every episode, and its files can be read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.rollouts.hostile import ENVS, env_task
from tests.rollouts.test_hostile import sampled

from palestra.durable.ledger import read_ledger
from palestra.rollouts import read_trajectories
from palestra.training import TrainConfig, train

BATCH = 12
"""Kinds in one run."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("first", sampled(list(range(0, len(ENVS), BATCH)), 18))
def test_a_training_run_accounts_for_every_episode(first: int, tiny_model: Path, tmp_path: Path) -> None:
    hostile = {env_task(name, 0).env: 1.0 for name in list(ENVS)[first : first + BATCH]}
    data: dict[str, Any] = {
        "model": {"path": str(tiny_model), "device": "cpu"},
        "envs": {**hostile, "game:GuessTheNumber-v0-easy": float(BATCH)},
        "steps": 2,
        "play": {"tasks": BATCH, "group_size": 2, "concurrency": 4, "max_tokens": 6, "deadline": 1, "retries": 0},
        "engine": {"batch": 4, "rows": 4},
        "checkpoint_every": 1,
    }
    train(msgspec.convert(data, TrainConfig), tmp_path, check=False)
    audit = read_ledger(tmp_path / "ledger").audit()
    assert (audit.issued, audit.open) == (2 * BATCH * 2, 0)
    assert audit.issued == audit.consumed + audit.failed + audit.dropped
    assert audit.consumed > 0
    for file in tmp_path.rglob("trajectories*.jsonl"):
        assert all(trajectory.task.env for trajectory in read_trajectories(file))
