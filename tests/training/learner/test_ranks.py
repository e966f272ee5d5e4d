"""One rank against two FSDP2 ranks over gloo: the same gradients, and checkpoints that either can take up."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_network
from torch.distributed.tensor import DTensor

from palestra.training.algorithms.loss import LossConfig
from palestra.training.learner.batch import PackingConfig
from palestra.training.learner.learner import Learner, LearnerConfig
from palestra.training.learner.model import LoraSettings
from palestra.training.learner.ranks import Leader, follow, join

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(400)]

KINDS = ("full", "lora", "offload")


def _make(kind: str, role: type[Learner] = Learner) -> Learner:
    network = tiny_network(lora=LoraSettings(rank=4)) if kind == "lora" else tiny_network()
    # 7 episodes and small micro-batches: the ranks' shares are not equal and one of the last micro-batches is empty.
    return learner_of(60, network=network, role=role, learning_rate=1e-2, offload=kind == "offload")


def _run(rank: int, ranks: int, folder: str) -> None:
    torch.set_num_threads(1)
    if ranks > 1:
        join(rank, ranks, f"file://{folder}/meet", "cpu")
    for kind in KINDS:
        _learn(_make(kind), Path(folder) / f"{kind}-{ranks}")
        if ranks > 1:
            again = _make(kind)
            again.load(Path(folder) / f"{kind}-1")
            weights = dict(again.weights())
            if rank == 0:
                torch.save({"updates": again.updates, "weights": weights}, Path(folder) / f"{kind}-1-by-{ranks}.pt")
    _lose_a_segment(Path(folder) / f"broken-{ranks}.pt")
    if ranks > 1:
        dist.destroy_process_group()


def _lose_a_segment(path: Path) -> None:
    """The policy computes NaN for one segment, and the reference for another."""
    packing = PackingConfig(60)
    config = LearnerConfig(packing=packing, loss=LossConfig(kl_coefficient=0.1))
    learner = Learner(tiny_network(critic=False), config, reference=tiny_network(critic=False))
    batch = random_batch()
    batch = replace(batch, sampled=learner.measure(batch).logprobs)
    advantages = np.random.default_rng(1).normal(size=len(batch.positions))
    spoil(learner.network, batch.ids[4])
    assert learner.reference is not None
    spoil(learner.reference, batch.ids[7])
    reference = learner.measure_reference(batch)
    if learner.ranks > 1:
        assert all(isinstance(parameter, DTensor) for parameter in learner.reference.parameters())
    metrics = learner.accumulate(replace(batch, advantages=advantages, reference=reference))
    gradient, seen = gradients(learner), learner.seen
    assert seen is not None
    lost = np.unique(batch.segments[np.isnan(seen.logprobs)]).tolist()
    if learner.rank == 0:
        torch.save({"gradient": gradient, "metrics": metrics, "lost": lost, "of": len(batch.ids)}, path)


def _learn(learner: Learner, folder: Path) -> None:
    batch = measured_batch(learner)
    metrics = learner.accumulate(batch)
    gradient = gradients(learner)
    learner.optimizer.zero_grad()
    norms = [learner.update(batch)["gradient_norm"] for _ in range(2)]
    folder.mkdir(exist_ok=True)
    learner.save(folder)
    if learner.network.config.lora is not None:
        learner.write_adapters(folder, "float32")
    weights = dict(learner.weights())
    if learner.rank == 0:
        result = {"gradient": gradient, "loss": metrics["loss"], "norms": norms, "weights": weights}
        torch.save(result, folder / "result.pt")


def _lead(rank: int, folder: str) -> None:
    """Rank 0 does all there is to do; the other one hears of it."""
    torch.set_num_threads(1)
    join(rank, 2, f"file://{folder}/led", "cpu")
    if rank:
        follow(_make("lora"))
    else:
        leader = _make("lora", Leader)
        assert isinstance(leader, Leader)
        batch = measured_batch(leader)
        leader.measure_reference(batch)
        place = Path(folder) / "led-by-one"
        place.mkdir()
        leader.update(batch)
        leader.save(place)
        lost, lost_weights = leader.update(batch), dict(leader.weights())
        leader.load(place)  # the second update is undone, and made again
        made, weights = leader.update(batch), dict(leader.weights())
        assert made == lost
        assert all(torch.equal(weight, lost_weights[name]) for name, weight in weights.items())
        torch.save({"norms": [made["gradient_norm"]], "weights": weights}, place / "result.pt")
        leader.dismiss()
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_those_who_follow_do_what_the_leader_does(runs: Path) -> None:
    mp.spawn(_lead, (str(runs),), nprocs=2)
    one, led = (torch.load(runs / name / "result.pt", weights_only=True) for name in ("lora-1", "led-by-one"))
    assert led["norms"][-1] == pytest.approx(one["norms"][-1], abs=1e-5)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(led["weights"][name], weight, atol=1e-4, rtol=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    _run(0, 1, str(folder))
    mp.spawn(_run, (2, str(folder)), nprocs=2)
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_do_what_one_does(runs: Path, kind: str) -> None:
    one, two = (torch.load(runs / f"{kind}-{ranks}" / "result.pt", weights_only=True) for ranks in (1, 2))
    assert float((one["gradient"] - two["gradient"]).abs().max()) <= 1e-5
    assert float(one["gradient"].abs().max()) > 1e-3
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-5)
    assert one["norms"] == pytest.approx(two["norms"], abs=1e-5)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, atol=1e-4, rtol=0)


def test_two_ranks_write_the_adapters_that_one_writes(runs: Path) -> None:
    one, two = (load_file(runs / f"lora-{ranks}" / "adapter_model.safetensors") for ranks in (1, 2))
    assert one.keys() == two.keys()
    assert all(name.endswith(("lora_A.weight", "lora_B.weight")) for name in one)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-4, rtol=0)
    settings = [msgspec.json.decode((runs / f"lora-{ranks}" / "adapter_config.json").read_bytes()) for ranks in (1, 2)]
    for one in settings:
        one["target_modules"] = sorted(one["target_modules"])
    assert settings[0] == settings[1]
    assert settings[0]["target_modules"]


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("ranks", [1, 2])
def test_moments_on_the_host_change_nothing(runs: Path, ranks: int) -> None:
    beside, host = (torch.load(runs / f"{kind}-{ranks}" / "result.pt", weights_only=True) for kind in ("full", "offload"))
    assert host["norms"] == beside["norms"]
    for name, weight in beside["weights"].items():
        assert torch.equal(host["weights"][name], weight), name
    for rank in range(ranks):  # the checkpoints, moments included
        file = f"learner-{rank:05d}.safetensors"
        one, other = (load_file(runs / f"{kind}-{ranks}" / file) for kind in ("full", "offload"))
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_two_ranks_leave_out_the_broken_segments_that_one_leaves_out(runs: Path) -> None:
    one, two = (torch.load(runs / f"broken-{ranks}.pt", weights_only=True) for ranks in (1, 2))
    assert one["lost"] == two["lost"] == [4, 7]
    assert one["metrics"] == pytest.approx(two["metrics"], abs=1e-5)
    assert two["metrics"]["not_finite"] == 2 / two["of"]
    assert torch.isfinite(two["gradient"]).all()
    assert float((one["gradient"] - two["gradient"]).abs().max()) <= 1e-5
    assert float(one["gradient"].abs().max()) > 1e-3


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", KINDS)
def test_what_two_ranks_saved_one_takes_up(runs: Path, kind: str) -> None:
    again = _make(kind)
    again.load(runs / f"{kind}-2")
    assert again.updates == 2
    saved = torch.load(runs / f"{kind}-2" / "result.pt", weights_only=True)["weights"]
    for name, weight in again.weights():
        assert torch.equal(weight, saved[name]), name


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", KINDS)
def test_what_one_rank_saved_two_take_up(runs: Path, kind: str) -> None:
    taken = torch.load(runs / f"{kind}-1-by-2.pt", weights_only=True)
    saved = torch.load(runs / f"{kind}-1" / "result.pt", weights_only=True)["weights"]
    assert taken["updates"] == 2
    for name, weight in taken["weights"].items():
        assert torch.equal(weight, saved[name]), name
