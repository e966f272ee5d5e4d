"""Servers as the engine of a run: every version reaches them as a model folder, and the run is an ordinary one."""

from pathlib import Path

import msgspec
import pytest
import torch
import transformers
from tests.engines.servers import Server, serving

from palestra.durable.ledger import Ledger
from palestra.training.assembly import assemble
from palestra.training.config import TrainConfig

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_run_is_played_by_servers(tmp_path: Path, kind: str, tiny_model: Path) -> None:
    first, second = Server(), Server()
    async with serving(first.app()) as one, serving(second.app()) as two:
        data = {
            "model": {"path": str(tiny_model)},
            "envs": {"game:GuessTheNumber-v0-easy": 1.0},
            "steps": 3,
            "play": {"tasks": 2, "group_size": 2, "max_tokens": 6},
            "engine": {"kind": kind, "urls": [one, two]},
            "learner": {"learning_rate": 1e-2, "loss": {"importance": "none"}},
        }
        trainer = assemble(msgspec.convert(data, TrainConfig), tmp_path / "run")
        await trainer.train()
        await trainer.engine.close()
    folders = sorted(path.name for path in (tmp_path / "run" / "weights").iterdir())
    assert folders == ["version-00000002", "version-00000003"]
    for server in (first, second):
        loads = [entry.rpartition("/")[2] for entry in server.log if entry.startswith("load")]
        assert loads == [f"version-{version:08d}" for version in range(4)]
    # What the servers were given is the learner's model, under the names that transformers knows.
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "weights" / "version-00000003")
    for name, weight in trainer.learner.weights():
        assert torch.equal(reloaded.state_dict()[name], weight), name
    with Ledger(tmp_path / "run" / "ledger") as ledger:
        assert ledger.audit().balanced
