"""Ranks that read only their rows of a checkpoint: together they hold the network that one process loads."""

import gc
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers
from safetensors.torch import load_file, save_file
from tests.training.learner.families import FAMILIES, LINEAR, SMALL, family_folder
from tests.training.learner.shapes import memory, restart_high_water_mark
from tests.training.learner.together import one_of
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch
from torch.distributed.fsdp import FSDPModule

from palestra.errors import Unsupported
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import shard
from palestra.training.learner.ranks import join
from palestra.training.learner.sharded import checkpoint_files
from palestra.training.learner.state import local_rows, rows_of
from palestra.training.learner.weights import memory_weights

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
    pytest.mark.filterwarnings("ignore:The fast path"),
]


def multimodal(folder: Path) -> Path:
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    config = transformers.AutoConfig.for_model("qwen3_5", text_config={**SMALL, **LINEAR}, vision_config=vision)
    torch.manual_seed(0)
    transformers.Qwen3_5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    """A small Llama whose stored tensors are not those that transformers wrote."""
    path = family_folder("llama", folder) / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def tied_twice(tensors: dict[str, torch.Tensor]) -> None:
    """The embedding also under the name of the head, as some checkpoints have it."""
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()


CASES: dict[str, Callable[[Path], Path]] = {
    "llama": lambda folder: family_folder("llama", folder),
    "experts, fused": lambda folder: family_folder("qwen3_moe", folder),
    "numbers beside tensors": lambda folder: family_folder("gemma3_text", folder),
    "other prefixes": multimodal,
    "tied and stored twice": lambda folder: changed(folder, tied_twice),
    "only the head is stored": lambda folder: changed(
        folder, lambda tensors: tensors.update({"lm_head.weight": tensors.pop("model.embed_tokens.weight")})
    ),
}


def check_rows(config: ModelConfig, ranks: int) -> None:
    """What every rank of ``ranks`` holds is what one process loads."""
    torch.manual_seed(7)
    whole = load_model(config)
    conversions = [type(one) for one in getattr(whole.language_model, "_weight_conversions", None) or []]
    expected = [*whole.named_parameters(), *whole.named_buffers()]
    for rank in range(ranks):
        torch.manual_seed(7)
        with one_of(ranks, rank):
            network = load_model(config)
            assert isinstance(network, FSDPModule)
            found = [*network.named_parameters(), *network.named_buffers()]
            assert [name for name, _ in found] == [name for name, _ in expected]
            for (name, mine), (_, full) in zip(found, expected, strict=True):
                held = rows_of(mine)
                assert held.shape == tuple(full.shape)
                parts = full.detach().chunk(ranks) if held.sharded else [full.detach()] * ranks
                assert torch.equal(held.rows, parts[rank] if rank < len(parts) else full.detach()[:0]), name
        assert [type(one) for one in network.language_model._weight_conversions] == conversions
        assert {p.requires_grad for p in network.parameters()} == {p.requires_grad for p in whole.parameters()}


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a group in which nothing is sent, no pass can be made."""
    monkeypatch.setattr("palestra.training.learner.loading.check_head", lambda network: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("case", CASES)
def test_each_rank_holds_its_rows_of_what_one_process_loads(case: str, tmp_path: Path) -> None:
    check_rows(ModelConfig(str(CASES[case](tmp_path / "model"))), 3)


@pytest.mark.usefixtures("unchecked")
def test_adapters_and_critic_are_drawn_as_one_process_draws_them(tmp_path: Path) -> None:
    folder = family_folder("llama", tmp_path / "model")
    check_rows(ModelConfig(str(folder), lora=LoraSettings(rank=2), critic=True), 2)


@pytest.mark.usefixtures("unchecked")
def test_a_checkpoint_in_several_files_or_of_the_hub_is_read_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = family_folder("llama", tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {name: f"model-{place % 2}.safetensors" for place, name in enumerate(names)}
    for file in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == file}, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    check_rows(ModelConfig(str(folder)), 2)
    parts = [folder / "model-0.safetensors", folder / "model-1.safetensors"]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, allow_patterns: str(folder))
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda path: transformers.LlamaConfig())
    assert checkpoint_files("someone/llama") == []  # one process reads the model whole
    with one_of(1, 0):
        assert checkpoint_files(str(folder)) == []
    with one_of(2, 1):
        assert checkpoint_files(str(folder)) == checkpoint_files("someone/llama") == parts
        (folder / "model.safetensors").touch()
        assert checkpoint_files(str(folder)) == [folder / "model.safetensors"]  # before the index, as in transformers
        assert checkpoint_files(str(tmp_path)) == []
        quantized = transformers.LlamaConfig()
        quantized.quantization_config = {"quant_method": "fp8"}
        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda path: quantized)
        assert checkpoint_files(str(folder)) == []


@pytest.mark.parametrize("lost", [["model.norm.weight"], ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"]])
def test_a_checkpoint_that_lacks_tensors_is_refused_by_name(lost: list[str], tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", lambda tensors: [tensors.pop(name) for name in lost])
    with one_of(2, 1), pytest.raises(Unsupported, match=rf"lacks {len(lost)} tensors of its model, such as {min(lost)}"):
        load_model(ModelConfig(str(folder)))


@pytest.mark.parametrize(("rows", "ranks"), [(5, 3), (2, 3), (6, 2), (1, 4)])
def test_the_rows_of_all_ranks_follow_each_other(rows: int, ranks: int) -> None:
    whole = torch.arange(2.0 * rows).view(rows, 2)
    for rank in range(ranks):
        with one_of(ranks, rank):
            mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
            own = torch.distributed.tensor.distribute_tensor(
                whole, mesh, [torch.distributed.tensor.Shard(0)], src_data_rank=None
            )
            held, first = local_rows(own)
            assert torch.equal(held, whole[first : first + len(held)])
            assert len(held) == len(whole.chunk(ranks)[rank]) if rank < len(whole.chunk(ranks)) else first == rows
    assert local_rows(whole)[1] == 0


# --------------------------------------------------------------------------------------------------------- two real processes

SAMPLE = ["llama", "qwen3_moe", "qwen3_next", "adapters", "memory"]
OTHERS = [kind for kind in FAMILIES if kind not in SAMPLE]


def settings(folder: Path, case: str) -> ModelConfig:
    if case == "adapters":
        return ModelConfig(str(folder / "llama"), lora=LoraSettings(rank=2), critic=True)
    return ModelConfig(str(folder / case))


def learned(folder: Path, case: str) -> dict[str, Any]:
    """The weights right after loading, what they measure, and one gradient."""
    torch.manual_seed(7)
    network = load_model(settings(folder, case))
    assert isinstance(network, FSDPModule) == dist.is_initialized()
    weights = dict(memory_weights(network))
    learner = learner_of(60, network=network)
    written = folder / f"{case}-by-{learner.ranks}"
    written.mkdir(exist_ok=True)
    learner.write_weights(written, "float32")
    logprobs = torch.from_numpy(learner.measure(random_batch()).logprobs)
    learner.accumulate(measured_batch(learner))
    return {"weights": weights, "logprobs": logprobs, "gradient": gradients(learner)}


def peak(work: Callable[[], Any]) -> int:
    """How far the memory of this process grows while ``work`` runs, in bytes."""
    gc.collect()
    restart_high_water_mark()
    before = memory("VmRSS")
    work()
    return memory("VmHWM") - before


def peaks(folder: Path) -> dict[str, int]:
    """Peak memory of a rank that reads its rows, and of one that loads the model whole and then shards it."""
    config = settings(folder, "memory")

    def whole() -> None:
        shard(load_model(config, transformers.AutoModelForCausalLM.from_pretrained(config.path)))

    return {"rows": peak(lambda: load_model(config)), "whole": peak(whole)}


def _rank(rank: int, ranks: int, folder: str, cases: list[str]) -> None:
    warnings.simplefilter("ignore")  # about kernels that are not installed
    torch.set_num_threads(1)
    join(rank, ranks, f"file://{folder}/meet", "cpu")
    for case in cases:
        found = peaks(Path(folder)) if case == "memory" else learned(Path(folder), case)
        if rank == 0:
            torch.save(found, Path(folder) / f"{case}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "cases",
    [pytest.param(SAMPLE, marks=pytest.mark.slow), pytest.param(OTHERS, marks=pytest.mark.full)],
    ids=["some", "others"],
)
def test_two_ranks_load_measure_learn_and_write_what_one_does(
    cases: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # what is freed goes back, so that the peak is what was in use
    for case in FAMILIES.keys() & cases:
        family_folder(case, tmp_path / case)
    if "memory" in cases:
        width = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 24, "head_dim": 64}
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SMALL, **width})).save_pretrained(tmp_path / "memory")
    mp.spawn(_rank, (2, str(tmp_path), cases), nprocs=2)
    for case in cases:
        found = torch.load(tmp_path / f"{case}.pt", weights_only=True)
        if case == "memory":
            assert found["rows"] <= 0.6 * found["whole"], found
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = learned(tmp_path, case)
        assert found["weights"].keys() == expected["weights"].keys()
        assert all(torch.equal(found["weights"][name], weight) for name, weight in expected["weights"].items()), case
        torch.testing.assert_close(found["logprobs"], expected["logprobs"], atol=1e-5, rtol=0)
        size = max(1.0, float(expected["gradient"].abs().max()))
        assert float((found["gradient"] - expected["gradient"]).abs().max()) <= 1e-5 * size, case
        two, one = (
            {
                name: tensor
                for path in (tmp_path / f"{case}-by-{ranks}").glob("*.safetensors")
                for name, tensor in load_file(path).items()
            }
            for ranks in (2, 1)
        )
        assert two.keys() == one.keys()
        assert all(torch.equal(tensor, one[name]) for name, tensor in two.items())
        assert len(list((tmp_path / f"{case}-by-2").glob("*.safetensors"))) == 2
