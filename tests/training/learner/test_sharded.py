"""Two ranks that read only their rows: the network is the one that a single process loads, and no rank holds all of it."""

import gc
import shutil
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
from tests.training.tiny import learner_of, measured_batch, random_batch
from torch.distributed.fsdp import FSDPModule

from palestra.errors import Unsupported
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import LoraSettings, ModelConfig, shard
from palestra.training.learner.ranks import join
from palestra.training.learner.weights import memory_weights

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore::UserWarning:peft")]

SAMPLE = ["llama", "qwen3_moe"]
OTHERS = [kind for kind in FAMILIES if kind not in SAMPLE]
HUB_NAME = "someone/llama"
LEARNED = ["llama", "tied", "adapters"]


def settings(folder: Path, case: str) -> ModelConfig:
    """What a case loads: a family, the text of a multimodal checkpoint, adapters, a name on the hub, or a broken folder."""
    if case == "adapters":
        return ModelConfig(str(folder / "llama"), lora=LoraSettings(rank=2), critic=True)
    return ModelConfig(HUB_NAME if case == "hub" else str(folder / case))


def prepared(folder: Path, case: str) -> None:
    if case == "multimodal":
        vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
        config = transformers.AutoConfig.for_model("qwen3_5", text_config={**SMALL, **LINEAR}, vision_config=vision)
        torch.manual_seed(0)
        transformers.Qwen3_5ForConditionalGeneration(config).save_pretrained(folder / case)
    elif case == "hub":
        cached = folder / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "main").write_text("0" * 40)
        shutil.copytree(folder / "llama", cached / "snapshots" / ("0" * 40))
    elif case == "tied":  # stores the embedding a second time, under the name of the head
        config = transformers.LlamaConfig(**{**SMALL, "tie_word_embeddings": True})
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(folder / case)
        path = folder / case / "model.safetensors"
        kept = load_file(path)
        head = kept["model.embed_tokens.weight"].clone()
        save_file({**kept, "lm_head.weight": head}, path, metadata={"format": "pt"})
    elif case == "incomplete":
        path = family_folder("llama", folder / case) / "model.safetensors"
        kept = {name: tensor for name, tensor in load_file(path).items() if name != "model.norm.weight"}
        save_file(kept, path, metadata={"format": "pt"})
    elif case == "memory":
        width = {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 24}
        config = transformers.LlamaConfig(**{**SMALL, **width, "head_dim": 64})
        transformers.LlamaForCausalLM(config).save_pretrained(folder / case)
    elif case in FAMILIES:
        family_folder(case, folder / case)


def loaded(folder: Path, case: str) -> dict[str, Any]:
    torch.manual_seed(7)
    network = load_model(settings(folder, case))
    assert isinstance(network, FSDPModule) == dist.is_initialized()
    weights = dict(memory_weights(network))
    trained = {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in network.named_parameters()}
    adapters = {name: tensor.detach() for name, tensor in trained.items() if ".lora_" in name or name.startswith("critic.")}
    learner = learner_of(network=network)
    written = folder / f"{case}-by-{learner.ranks}"
    written.mkdir(exist_ok=True)
    learner.write_weights(written, "float32")
    return {"weights": {**weights, **adapters}, "logprobs": torch.from_numpy(learner.measure(random_batch()).logprobs)}


def learned(folder: Path, case: str) -> dict[str, Any]:
    """One update right after loading: its gradient norm, and the weights afterwards, those of the critic included."""
    torch.manual_seed(7)
    learner = learner_of(network=load_model(settings(folder, case)))
    metrics = learner.update(measured_batch(learner))
    weights = {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in learner.network.named_parameters()}
    return {"norm": metrics["gradient_norm"], "weights": {name: tensor.detach().clone() for name, tensor in weights.items()}}


def peak(work: Callable[[], Any]) -> int:
    """How far the memory of this process grows while ``work`` runs, in bytes."""

    def memory(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins at what is used now
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
        if case == "incomplete":
            with pytest.raises(Unsupported, match=r"lacks 1 tensors of its model, such as model\.norm\.weight"):
                load_model(settings(Path(folder), case))
            continue
        found = peaks(Path(folder)) if case == "memory" else loaded(Path(folder), case)
        after = learned(Path(folder), case) if case in LEARNED else {}
        if rank == 0:
            torch.save(found, Path(folder) / f"{case}.pt")
            torch.save(after, Path(folder) / f"{case}-learned.pt")
    dist.barrier()
    dist.destroy_process_group()


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def _same_update(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["norm"] == pytest.approx(expected["norm"], rel=1e-4)
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], weight, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([*SAMPLE, "tied", "multimodal", "adapters", "hub", "incomplete", "memory"], marks=pytest.mark.slow),
        pytest.param(OTHERS, marks=pytest.mark.full),
    ],
    ids=["some", "others"],
)
def test_two_ranks_load_what_one_loads(cases: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")  # what is freed goes back, so that the peak is what was in use
    for case in cases:
        prepared(tmp_path, case)
    mp.spawn(_rank, (2, str(tmp_path), cases), nprocs=2)
    for case in cases:
        if case in ("hub", "incomplete", "memory"):  # hub: the cache of this process is another one
            continue
        found = torch.load(tmp_path / f"{case}.pt", weights_only=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = loaded(tmp_path, case)
        assert found["weights"].keys() == expected["weights"].keys()
        for name, weight in expected["weights"].items():
            assert torch.equal(found["weights"][name], weight), (case, name)
        torch.testing.assert_close(found["logprobs"], expected["logprobs"], atol=1e-5, rtol=0)
        if case in LEARNED:
            _same_update(torch.load(tmp_path / f"{case}-learned.pt", weights_only=True), learned(tmp_path, case))
        written, alone = tensors(tmp_path / f"{case}-by-2"), tensors(tmp_path / f"{case}-by-1")
        assert written.keys() == alone.keys()
        assert all(torch.equal(tensor, alone[name]) for name, tensor in written.items())
    if "hub" in cases:
        hub, llama = (torch.load(tmp_path / f"{case}.pt", weights_only=True)["logprobs"] for case in ("hub", "llama"))
        assert torch.equal(hub, llama)
        measured = torch.load(tmp_path / "memory.pt", weights_only=True)
        assert measured["rows"] <= 0.6 * measured["whole"], measured
