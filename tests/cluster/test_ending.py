"""What the learner of a cluster starts ends with its run, also if the run fails."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from palestra.cluster.learner import LearnerActor, Learning
from palestra.errors import UsageError
from palestra.recipes.config import TrainConfig
from palestra.training import assembly

pytestmark = pytest.mark.torch


def test_the_engine_of_a_failed_run_is_closed_and_its_notes_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = []

    class Servers:
        context_length = 1

        async def close(self) -> None:
            closed.append(self)

    def build(config: TrainConfig, folder: Path, *, say: Any) -> Servers:
        say("1 of 2 servers are ready")
        return Servers()

    def fail(*_: Any, **__: Any) -> None:
        raise UsageError("the run fails here")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(current_actor=None)))
    monkeypatch.setattr(assembly, "build_engine", build)
    monkeypatch.setattr(assembly, "assemble", fail)
    config = msgspec.convert({"model": {"path": "m"}, "envs": {"game:x": 1.0}, "steps": 1}, TrainConfig)
    actor = LearnerActor()
    with pytest.raises(UsageError, match="fails here"):
        asyncio.run(actor._lead(config, Learning(b"", str(tmp_path), replicas=0), ""))
    assert len(closed) == 1
    assert actor._notes == ["1 of 2 servers are ready"]
