"""Compiled layers: the same gradient, few compilations, and a sentence where nothing can be compiled."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.training.tiny import gradients, learner_of, measured_batch, tiny_network

from palestra.errors import UsageError
from palestra.training.learner.batch import Layout
from palestra.training.learner.model import LoraSettings
from palestra.training.learner.ranks import join

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),  # of torch's own tracing
]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_compiled_layers_give_the_same_gradient(layout: Layout) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    # aot_eager traces and differentiates as every backend does, and compiles nothing.
    plain, compiled = (learner_of(60, network=tiny_network(compile=name), layout=layout) for name in ("", "aot_eager"))
    batch = measured_batch(compiled)
    for learner in (plain, compiled):
        learner.accumulate(batch)
    assert float((gradients(compiled) - gradients(plain)).abs().max()) <= 1e-5
    assert float(gradients(plain).abs().max()) > 1e-3
    # torch compiles micro-batches of one row apart from those of several rows, and this batch has one.
    compiled.accumulate(measured_batch(compiled, seed=1))
    graphs = counters["stats"]["unique_graphs"]
    compiled.accumulate(measured_batch(compiled, seed=2))
    assert counters["stats"]["unique_graphs"] == graphs > 0, "other lengths and other segments are compiled again"


def test_recomputed_adapters_are_compiled_as_well() -> None:
    torch._dynamo.reset()
    plain = learner_of(60, network=tiny_network(lora=LoraSettings(rank=2)))
    batch = measured_batch(plain)
    plain.accumulate(batch)
    other = learner_of(60, network=tiny_network(lora=LoraSettings(rank=2), compile="aot_eager", recompute=True))
    other.network.load_state_dict(plain.network.state_dict())
    other.accumulate(batch)
    assert float((gradients(other) - gradients(plain)).abs().max()) <= 1e-5


def _rank(rank: int, ranks: int, folder: str) -> None:
    """The gradient of one rank as it is, and of two ranks that compile and recompute."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if ranks > 1:
        join(rank, ranks, f"file://{folder}/meet", "cpu")
    network = tiny_network(compile="aot_eager", recompute=True) if ranks > 1 else tiny_network()
    learner = learner_of(60, network=network, layout="packed")
    learner.accumulate(measured_batch(learner))
    found = gradients(learner)
    if rank == 0:
        torch.save(found, Path(folder) / f"{ranks}.pt")
    if ranks > 1:
        dist.destroy_process_group()


@pytest.mark.full
def test_two_ranks_that_compile_give_the_gradient_of_one(tmp_path: Path) -> None:
    _rank(0, 1, str(tmp_path))
    mp.spawn(_rank, (2, str(tmp_path)), nprocs=2)
    one, two = (torch.load(tmp_path / f"{ranks}.pt", weights_only=True) for ranks in (1, 2))
    assert float((one - two).abs().max()) <= 1e-5


def test_without_a_compiler_a_sentence_says_so(tmp_path: Path) -> None:
    program = "from palestra.training.learner.compiling import check_compiler; check_compiler('inductor', 'cpu')"
    own = {"CXX": str(tmp_path / "nowhere"), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), **own}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode
    assert 'UsageError: model.compile = "inductor" does not work on "cpu"' in last
    assert "install a C++ compiler such as g++" in last


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(UsageError, match=r'model\.compile = "nobody" does not work on "cpu"'):
        tiny_network(compile="nobody")
