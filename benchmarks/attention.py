"""Packed batches without a dense mask: peak memory and gradient of ``segments`` against ``sdpa``, which gets a mask of n × n.

    python benchmarks/attention.py --quick      # 4,096 positions, under 50 s
    python benchmarks/attention.py              # 16,384 positions

Each side is a process of its own that computes the gradient of a two-layer Llama on the same packed row of 16 segments. Its
memory is how far the resident set grows above what the loaded learner takes. Both are forks of this process, because importing
torch and transformers takes most of the time. The model is narrow, so that attention is most of the pass. In a wide model the
activations of the other layers are larger than the mask: the last row plans that for the shape of Qwen3-4B with recomputed
activations, on tensors without memory. It has no limit.
"""

import argparse
import ctypes
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from rows import Row, finish

sys.path.append(str(Path(__file__).parents[1]))  # shapes are shared with the tests

from tests.training.learner.shapes import memory, of_shape, restart_high_water_mark

from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import ModelConfig
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.planning import MicroBatchShape, plan_memory

SIDES = ("sdpa", "segments")
SEGMENTS = 16
VOCABULARY = 64
_M_MMAP_THRESHOLD = -3


def one_side(attention: str, positions: int, path: Path) -> None:
    """Write the peak memory and the gradient of a packed batch under ``attention`` to ``path``."""
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 65_536)  # freed memory goes back to the system
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": positions}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **heads, initializer_range=0.2))
    network = load_model(ModelConfig("", attention=attention), model)
    learner = Learner(network, LearnerConfig(packing=PackingConfig(positions, "packed"), loss=LossConfig(importance="none")))
    length = positions // SEGMENTS
    batch = of_shape(MicroBatchShape(SEGMENTS, length, length // 2, packed=True), VOCABULARY)
    before = memory("VmRSS")
    restart_high_water_mark()
    learner.accumulate(batch)
    peak = memory("VmHWM") - before
    torch.save(
        {"peak": peak, "gradient": torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])}, path
    )


def measured(attention: str, positions: int, folder: Path) -> dict[str, Any]:
    """Run ``one_side`` in a fork of this process, which has not computed anything yet."""
    path = folder / f"{attention}.pt"
    side = multiprocessing.get_context("fork").Process(target=one_side, args=(attention, positions, path))
    side.start()
    side.join()
    if side.exitcode:
        raise SystemExit(f"the side {attention} ended with code {side.exitcode}")
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


def _planned(attention: str) -> float:
    shape: dict[str, Any] = {
        "vocab_size": 151_936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "head_dim": 128,
    }
    settings = transformers.Qwen3Config(**shape, num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True)
    config = ModelConfig("", device="cuda", attention=attention, recompute=True, compute="bfloat16")
    plan = plan_memory(config, settings, MicroBatchShape(4, 4096, 2048, packed=True))
    return float(plan.sharded or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4,096 positions instead of 16,384")
    options = parser.parse_args()
    positions = 4096 if options.quick else 16_384
    with tempfile.TemporaryDirectory() as folder:
        dense, segments = (measured(side, positions, Path(folder)) for side in SIDES)
    difference = float((dense["gradient"] - segments["gradient"]).abs().max() / dense["gradient"].abs().max())
    rows = [
        Row(
            f"peak of a packed row of {positions:,} positions, segments over dense mask",
            segments["peak"] / dense["peak"],
            "<= 0.5",
        ),
        Row("largest difference of the gradient, relative", difference, "<= 0.0001"),
    ]
    if not options.quick:
        rows.append(
            Row("the same peak planned for Qwen3-4B, recomputed, bfloat16", _planned("segments") / _planned("sdpa"), "")
        )
    finish(rows)


if __name__ == "__main__":
    main()
