"""An engine that samples from other weights than the learner has is noticed once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.training.tiny import random_batch

from palestra.inference.engines.hf import HFEngine
from palestra.inference.servers.agreement import SamplerWatch
from palestra.training import TrainConfig
from palestra.training.algorithms.groups import GroupCounts
from palestra.training.assembly import assemble
from palestra.training.experience import Experience

pytestmark = pytest.mark.torch


def step(kl: float | None, staleness: int = 0) -> Experience:
    bare = Experience(random_batch(), [], GroupCounts(), {}, staleness)
    return bare if kl is None else replace(bare, measured={"sampler/kl": kl})


@pytest.mark.parametrize(
    ("steps", "warnings"),
    [
        ([step(1e-13), step(2.7e-3), step(5e-3), step(9e-3), step(9e-3)], 1),
        ([step(1e-13), step(0.1), step(1e-13), step(0.1)], 0),  # single odd tokens
        ([step(1e-13), step(9e-4), step(9e-4)], 0),  # arithmetic in bfloat16 on one side
        ([step(3e-4), step(5e-3), step(5e-3)], 0),
        ([step(3e-4), step(7e-3), step(7e-3)], 1),
        ([step(6e-3), step(3e-2), step(3e-2)], 1),  # a run that resumes with the fault
        ([step(3e-2), step(3e-2)], 1),
        ([step(None), step(1e-13), step(None), step(0.1), step(None), step(0.1)], 1),
        ([step(1e-13), step(0.1, staleness=1), step(0.1, staleness=1)], 0),
    ],
)
def test_a_rise_of_the_kl_is_a_warning(steps: list[Experience], warnings: int) -> None:
    said: list[str] = []
    watch = SamplerWatch(said.append)
    for experience in steps:
        watch.look(experience.measured.get("sampler/kl"), stale=bool(experience.staleness))
    assert len(said) == warnings


async def test_a_run_whose_engine_keeps_the_first_weights_says_so(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {
        "model": {"path": str(tiny_model)},
        "envs": {"game:GuessTheNumber-v0-easy": 1.0},
        "steps": 3,
        "play": {"tasks": 2, "group_size": 4, "max_tokens": 6, "cut": 1.0},
        "learner": {"learning_rate": 1e-2},
        "advantage": {"method": "reinforce"},
    }
    load = HFEngine.update_weights

    async def only_once(engine: HFEngine, source: Any, version: int) -> None:
        if version == 0:
            await load(engine, source, version)
        engine.version = version

    warnings = []
    for keeps in (False, True):
        with monkeypatch.context() as changed:
            if keeps:
                changed.setattr(HFEngine, "update_weights", only_once)
            said: list[str] = []
            trainer = assemble(msgspec.convert(data, TrainConfig), tmp_path / str(keeps), say=said.append)
            await trainer.train()
            await trainer.close()
            warnings.append(sum("the engine seems to sample from other weights" in line for line in said))
    assert warnings == [0, 1]
