"""The plan of a learner's memory, held against the memory that its process takes."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers
from tests.training.learner.families import EXPERTS, FAMILIES, SMALL

from palestra.encoding import ints
from palestra.training.learner.batch import Batch, PackingConfig
from palestra.training.learner.learner import Learner, LearnerConfig
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import LoraSettings, ModelConfig
from palestra.training.learner.planning import LearnerMemory, plan_memory

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

LENGTH = 128
PACKING = {layout: PackingConfig(1024, layout) for layout in ("padded", "packed")}
WIDE = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "head_dim": 64}
CASES: list[tuple[str, str, ModelConfig]] = [
    ("llama", "padded", ModelConfig("")),
    ("qwen3", "packed", ModelConfig("", critic=True)),
    ("gemma3_text", "padded", ModelConfig("", recompute=True)),
    ("llama", "packed", ModelConfig("", lora=LoraSettings(rank=4))),
]


def settings(kind: str, **changes: Any) -> Any:
    config = {**SMALL, **FAMILIES[kind].config, **WIDE, "max_position_embeddings": 2048, **changes}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"] * 2
    return transformers.AutoConfig.for_model(kind, **config)


def planned(kind: str, layout: str, config: ModelConfig) -> LearnerMemory:
    return plan_memory(config, settings(kind), PACKING[layout], LENGTH)


def sampled(segments: int) -> Batch:
    """Full micro-batches: every token but the first of a segment was sampled."""
    rng = np.random.default_rng(0)
    total = segments * (LENGTH - 1)
    return Batch(
        ids=tuple(ints(rng.integers(0, WIDE["vocab_size"], LENGTH).tolist()) for _ in range(segments)),
        owners=np.arange(segments),
        count=segments,
        segments=np.repeat(np.arange(segments), LENGTH - 1),
        positions=np.tile(np.arange(1, LENGTH), segments),
        turns=np.zeros(total, dtype=np.int64),
        sampled=np.full(total, -8.0),
        old=np.full(total, -8.0),
        advantages=rng.normal(size=total),
    )


def memory(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def measured(kind: str, layout: str, config: ModelConfig) -> int:
    """How far the memory of this process grows while it loads a model and makes two updates."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins at what is used now
    before = memory("VmRSS")
    network = load_model(config, transformers.AutoModelForCausalLM.from_config(settings(kind)))
    learner = Learner(network, LearnerConfig(packing=PACKING[layout]))
    for _ in range(2):
        learner.update(sampled(16))
    return memory("VmHWM") - before


def main() -> None:
    torch.set_num_threads(1)
    measured(*CASES[0])  # what the libraries take once
    print(msgspec.json.encode([measured(*case) for case in CASES]).decode())


@pytest.mark.slow
def test_the_plan_is_within_a_fifth_of_what_a_process_takes() -> None:
    # What is freed goes back to the system, so that the peak is what was in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-W", "ignore", "-c", f"from {__name__} import main; main()"]
    said = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=380, check=True).stdout
    for case, found in zip(CASES, msgspec.json.decode(said.splitlines()[-1]), strict=True):
        plan = planned(*case)
        assert plan.passes is not None
        expected = 4 * plan.parameters + 12 * plan.trained + plan.passes
        assert 0.8 <= expected / found <= 1.2, (case, expected, found)


@pytest.mark.slow
def test_recomputation_and_packing_save_what_they_promise() -> None:
    plain, again, packed = (
        planned("llama", layout, ModelConfig("", recompute=recompute)).passes
        for layout, recompute in [("padded", False), ("padded", True), ("packed", False)]
    )
    assert plain is not None
    assert again is not None
    assert packed is not None
    assert again < 0.7 * plain
    assert packed < plain


@pytest.mark.slow
def test_experts_are_chosen_by_tokens_and_so_their_pass_is_not_planned() -> None:
    plan = plan_memory(ModelConfig(""), settings("qwen3_moe", **EXPERTS), PACKING["packed"], LENGTH)
    assert plan.passes is None
    assert plan.parameters == plan.trained > 0
