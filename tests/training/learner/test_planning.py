"""The plan of a learner's memory, held against the memory that its process takes."""

import gc
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from tests.training.learner.families import EXPERTS, FAMILIES, SMALL
from tests.training.learner.shapes import memory, of_shape, restart_high_water_mark

from palestra.errors import Unsupported
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.learner import Learner
from palestra.training.learner.loading import load_model
from palestra.training.learner.planning import MicroBatchShape, _Live, _planned, plan_memory
from palestra.training.learner.ranks import join

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

WIDE = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "head_dim": 64}
FULL = MicroBatchShape(8, 128, 64)
CASES: list[tuple[str, MicroBatchShape, ModelConfig]] = [
    ("llama", FULL, ModelConfig("")),
    ("qwen3", FULL._replace(packed=True), ModelConfig("", critic=True)),
    ("gemma3_text", FULL, ModelConfig("", recompute=True)),
    ("llama", FULL._replace(packed=True), ModelConfig("", lora=LoraSettings(rank=4))),
    ("llama", MicroBatchShape(8, 128, 32, prefix=96), ModelConfig("", share_prefix=True)),
    ("llama", FULL, ModelConfig("", compute="bfloat16")),
    # Larger, because it keeps so little that the process itself would differ by a fifth from run to run.
    ("llama", MicroBatchShape(16, 256, 128), ModelConfig("", compute="bfloat16", recompute=True, lora=LoraSettings(rank=4))),
]
SHARDED = [case for case in CASES if not case[2].share_prefix]  # that needs one rank


def settings(kind: str, **changes: Any) -> Any:
    config = {**SMALL, **FAMILIES[kind].config, **WIDE, "max_position_embeddings": 2048, **changes}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:2] * 3
    return transformers.AutoConfig.for_model(kind, **config)


def plan_of(config: ModelConfig, settings: Any, shape: MicroBatchShape) -> Any:
    """The plan, of a family that can be planned."""
    return plan_memory(config, settings, shape)


def planned(kind: str, shape: MicroBatchShape, config: ModelConfig) -> Any:
    return plan_of(config, settings(kind), shape)


def measured(kind: str, shape: MicroBatchShape, config: ModelConfig) -> int:
    """How far the memory of this process grows while it loads a model and makes two updates."""
    gc.collect()
    restart_high_water_mark()
    before = memory("VmRSS")
    # Ranks read their rows of a checkpoint.
    network = load_model(config, None if config.path else transformers.AutoModelForCausalLM.from_config(settings(kind)))
    packing = PackingConfig(shape.segments * shape.length, "packed" if shape.packed else "padded")
    learner = Learner(network, LearnerConfig(packing=packing))
    for _ in range(2):
        learner.update(of_shape(shape, WIDE["vocab_size"], micro_batches=2 * learner.ranks))
    return memory("VmHWM") - before


def main() -> None:
    torch.set_num_threads(1)
    measured(*CASES[0])  # what the libraries take once
    print(msgspec.json.encode([measured(*case) for case in CASES]).decode())


@pytest.mark.full
def test_the_plan_is_within_a_fifth_of_what_a_process_takes() -> None:
    # What is freed goes back to the system, so that the peak is what was in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-W", "ignore", "-c", f"from {__name__} import main; main()"]
    said = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=880, check=True).stdout
    ratios = []
    for case, found in zip(CASES, msgspec.json.decode(said.splitlines()[-1]), strict=True):
        plan = planned(*case)
        assert plan.passes is not None, case
        adapters = plan.trained if case[2].lora is not None else 0
        ratios.append((4 * (plan.parameters + adapters) + 12 * plan.trained + plan.passes) / found)
    print([round(ratio, 2) for ratio in ratios])
    assert all(0.8 <= ratio <= 1.2 for ratio in ratios), ratios


def _rank(rank: int, folder: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    join(rank, 2, f"file://{folder}/meet", "cpu")
    cases = [(kind, shape, msgspec.structs.replace(config, path=f"{folder}/{kind}")) for kind, shape, config in SHARDED]
    measured(*cases[0])
    Path(folder, f"{rank}.json").write_bytes(msgspec.json.encode([measured(*case) for case in cases]))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.full
def test_the_plan_of_a_rank_is_within_a_fifth_of_what_each_of_two_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    for kind in {kind for kind, _, _ in SHARDED}:
        transformers.AutoModelForCausalLM.from_config(settings(kind)).save_pretrained(tmp_path / kind)
    mp.spawn(_rank, (str(tmp_path),), nprocs=2)
    found = [msgspec.json.decode((tmp_path / f"{rank}.json").read_bytes()) for rank in range(2)]
    ratios = []
    for case, by_rank in zip(SHARDED, zip(*found, strict=True), strict=True):
        plan = planned(*case)
        assert plan.sharded is not None, case
        adapters = plan.trained if case[2].lora is not None else 0
        shared = 4 * (plan.parameters + adapters) + 12 * plan.trained
        ratios += [(shared / 2 + plan.sharded + plan.gathered) / taken for taken in by_rank]
    print([round(ratio, 2) for ratio in ratios])
    assert all(0.8 <= ratio <= 1.2 for ratio in ratios), ratios


def small(kind: str = "llama", **changes: Any) -> Any:
    """A configuration that is planned in a fraction of a second."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 64, "head_dim": 8, "tie_word_embeddings": False}
    return settings(kind, **{**sizes, **changes})


LAYER = 2 * 32 * 32 + 2 * 32 * 8 * 2 + 3 * 32 * 48 + 2 * 32
"""The parameters of a layer of ``small()``: attention, feed-forward part, norms."""
OUTSIDE = 2 * 64 * 32 + 32
"""Embedding, head and last norm."""


@pytest.mark.parametrize(("compute", "part"), [("float32", 1), ("bfloat16", 2)])
def test_parameters_are_counted_and_a_rank_gathers_a_layer_at_a_time(compute: Any, part: int) -> None:
    plan = plan_of(ModelConfig("", compute=compute), small(num_hidden_layers=5), MicroBatchShape(2, 16, 4))
    assert plan.parameters == plan.trained == 5 * LAYER + OUTSIDE
    # What is gathered of all layers but one, three buffers of a layer, and the whole gradients of both before they are divided.
    assert plan.gathered == 4 * ((OUTSIDE + 3 * LAYER) // part + OUTSIDE + LAYER)


def test_an_embedding_that_is_also_the_head_counts_once() -> None:
    shape = MicroBatchShape(2, 16, 4)
    apart = plan_of(ModelConfig(""), small(num_hidden_layers=5), shape)
    tied = plan_of(ModelConfig(""), small(num_hidden_layers=5, tie_word_embeddings=True), shape)
    assert tied.parameters == tied.trained == 5 * LAYER + OUTSIDE - 64 * 32
    assert apart.gathered - tied.gathered == 2 * 64 * 32 * 4  # once to compute with, once as its gradient


def test_only_adapters_and_critic_are_trained_and_are_no_parameters_of_the_model() -> None:
    config = ModelConfig("", lora=LoraSettings(rank=3, targets=("q_proj", "k_proj")), critic=True)
    plan = plan_of(config, small(num_hidden_layers=7), MicroBatchShape(2, 16, 4))
    assert plan.parameters == 7 * LAYER + OUTSIDE
    assert plan.trained == 7 * 3 * (32 + 32 + 32 + 16) + 32 + 1


@pytest.mark.parametrize(
    ("kind", "shape", "config"),
    [
        ("gemma3_text", MicroBatchShape(3, 24, 8, packed=True), ModelConfig("", critic=True)),
        pytest.param("llama", MicroBatchShape(2, 24, 8), ModelConfig(""), marks=pytest.mark.slow),
        pytest.param("llama", MicroBatchShape(9, 20, 7, packed=True), ModelConfig("", recompute=True), marks=pytest.mark.slow),
        pytest.param("llama", MicroBatchShape(2, 40, 8, prefix=24), ModelConfig("", share_prefix=True), marks=pytest.mark.slow),
    ],
)
def test_what_a_few_layers_need_is_extended_to_all_of_them(kind: str, shape: MicroBatchShape, config: ModelConfig) -> None:
    plan = plan_of(config, small(kind), shape)
    run: Any = _planned(config, small(kind), shape)
    assert plan.passes == pytest.approx(max(run.passes), rel=0.01)
    assert plan.sharded == plan.passes
    assert plan.trained == run.trained


def test_a_pass_keeps_the_probabilities_of_all_sampled_tokens() -> None:
    """Of a model that is hardly anything but its vocabulary, a pass keeps little else but logits and probabilities."""
    words, sampled = 100_000, 2 * 64
    plan = plan_of(ModelConfig(""), small(vocab_size=words), MicroBatchShape(2, 80, 64))
    assert 2.0 <= plan.passes / (4 * words * sampled) <= 4.0


def test_a_packed_row_of_many_segments_is_planned_as_four_of_the_same_positions() -> None:
    few, many = (
        plan_of(ModelConfig(""), small(), MicroBatchShape(segments, 1280 // segments, 160 // segments, packed=True))
        for segments in (4, 40)
    )
    assert few == many


def test_what_is_freed_is_not_counted_and_a_view_is_no_new_tensor() -> None:
    known = torch.zeros(100)
    live = _Live([known])
    with live:
        first = torch.ones(10)
        second = first * 2.0
        view = second.view(2, 5)
        known.add_(1.0)
        del first
        third = view + 1.0
    assert live.restarted_peak() == 4 * 20
    del second, view
    assert live.restarted_peak() == 4 * 20
    del third
    assert live.restarted_peak() == 4 * 10
    assert live.restarted_peak() == 0


@pytest.mark.parametrize("packed", [True, False])
def test_ranks_that_divide_the_rows_of_a_small_model_need_less(packed: bool) -> None:
    plan = plan_of(ModelConfig(""), small(), MicroBatchShape(2, 64, 8, packed=packed, divided=2))
    assert 0.4 <= plan.sharded / plan.passes <= 0.75


def test_ranks_that_cannot_divide_the_heads_are_refused_by_the_plan() -> None:
    with pytest.raises(Unsupported, match=r"learner\.context_parallel = 3 divides the heads .* the model has 4"):
        plan_of(ModelConfig(""), small(), MicroBatchShape(2, 64, 8, packed=True, divided=3))


def test_a_family_that_cannot_be_planned_says_so() -> None:
    experts = plan_of(ModelConfig(""), small("qwen3_moe", **EXPERTS), MicroBatchShape(2, 16, 4))
    assert experts.passes is None  # experts are chosen by the tokens
    assert experts.parameters == experts.trained > 0
    with pytest.raises(Unsupported, match="GPT2Model has no attribute layers"):
        plan_of(ModelConfig(""), transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=64), FULL)
    with pytest.raises(Unsupported, match="transformers does not build this model"):
        plan_of(ModelConfig(""), transformers.CLIPTextConfig(), FULL)


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_what_exists_before_a_pass_is_not_part_of_it(compute: Any) -> None:
    wide = settings("llama", vocab_size=64, hidden_size=1024, intermediate_size=4096, num_hidden_layers=8)
    plan = plan_of(ModelConfig("", compute=compute), wide, MicroBatchShape(1, 4, 2))
    weights, gradients = 4 * plan.parameters, 4 * plan.trained
    assert plan.sharded < 0.15 * min(weights, gradients)  # of the largest matrix: the gradient that is added
    assert plan.passes < (0.15 if compute == "float32" else 0.65) * weights  # autocast copies all weights, in 16 bits


@pytest.mark.slow
def test_copies_are_left_out_of_a_shard_only_where_there_are_some() -> None:
    """Frozen weights are copied per layer, and the copies of a recomputed layer do not stay."""
    small = settings("llama", vocab_size=64, hidden_size=512, intermediate_size=2048, num_hidden_layers=16)
    config = ModelConfig("", compute="bfloat16", recompute=True, lora=LoraSettings(rank=2))
    plan = plan_of(config, small, MicroBatchShape(1, 64, 8))
    assert 0 < plan.passes - plan.sharded < 0.25 * 2 * plan.parameters


@pytest.mark.slow
@pytest.mark.parametrize("packed", [True, False])
def test_ranks_that_divide_a_micro_batch_need_their_part_of_its_memory(packed: bool) -> None:
    shape = MicroBatchShape(2, 1024, 256, packed=packed)
    wide = settings("llama", num_attention_heads=4, num_key_value_heads=2)
    whole, divided = (plan_of(ModelConfig(""), wide, shape._replace(divided=ranks)) for ranks in (1, 4))
    assert whole.passes == whole.sharded == divided.passes
    assert 0.25 <= divided.sharded / whole.sharded <= 0.4  # the head of a rank may get all of the sampled tokens


@pytest.mark.slow
def test_a_model_of_32_billion_parameters_is_planned_within_10_seconds() -> None:
    heads: dict[str, Any] = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 64}
    large = transformers.Qwen3Config(vocab_size=151_936, hidden_size=5120, intermediate_size=25_600, **heads)
    began = time.process_time()
    config = ModelConfig("", device="cuda", recompute=True, compute="bfloat16")
    plan = plan_of(config, large, MicroBatchShape(4, 4096, 2048, packed=True))
    assert time.process_time() - began <= 10.0
    assert plan.parameters == pytest.approx(32.8e9, rel=0.01)
    # A position keeps its input of every layer in bfloat16. Autocast copies the weights of a single rank.
    assert plan.passes > plan.sharded > 16_384 * 64 * 5120 * 2
    assert plan.gathered > 2 * 151_936 * 5120 * 4
