"""Several processes that act as one: what the leader sends, and one rank against two FSDP2 ranks over gloo."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_network
from torch.distributed.tensor import DTensor

from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import LearnerConfig, PackingConfig
from palestra.recipes.model import LoraSettings
from palestra.training.learner.context import ContextGroup
from palestra.training.learner.learner import Learner
from palestra.training.learner.ranks import Leader, follow, join

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning:peft")]

ORDERS: list[tuple[Any, ...]] = [
    ("measure", 1),
    ("measure_reference", 2),
    ("measure_teacher", 3),
    ("update", 4, 5),
    ("weights",),
    ("checkpoint_weights", "bfloat16"),
    ("write_weights", 6, "float32"),
    ("write_adapters", 7, "float32"),
    ("release",),
    ("save", 8),
    ("load", 9),
]


def test_followers_make_every_call_of_the_leader_and_take_part_to_its_end(
    alone: ContextGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[Any, ...]] = []
    made: list[tuple[Any, ...]] = []
    broadcast = dist.broadcast_object_list

    def noted(objects: list[Any], **options: Any) -> None:
        """The group has one rank, which hears what it has said before."""
        said = objects[0] is not None
        broadcast(objects, **options)
        sent.append(objects[0]) if said else objects.__setitem__(0, sent.pop(0))

    def gathering(order: tuple[Any, ...]) -> Iterator[int]:
        yield 0
        made.append(order)

    def do(name: str, *arguments: Any) -> Any:
        if "weights" in name and "write" not in name:
            return gathering((name, *arguments))
        made.append((name, *arguments))
        return f"what {name} returns"

    monkeypatch.setattr(dist, "broadcast_object_list", noted)
    for name, *_ in ORDERS:
        monkeypatch.setattr(Learner, name, lambda _, *arguments, verb=name: do(verb, *arguments))
    leader = learner_of(role=Leader)
    for name, *arguments in ORDERS:
        result = getattr(leader, name)(*arguments)
        if name.endswith("weights") and not name.startswith("write"):
            assert list(result) == [0]
        else:
            assert result == (
                None if name in ("write_weights", "write_adapters", "release", "load") else f"what {name} returns"
            )
    assert isinstance(leader, Leader)
    leader.dismiss()
    assert sent == [*ORDERS, ("dismiss",)]
    assert made == ORDERS
    made.clear()
    follow(learner_of())
    assert made == ORDERS


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda:1", "cpu:gloo,cuda:nccl")])
def test_ranks_meet_where_they_are_told(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Any] = []
    monkeypatch.setattr(dist, "init_process_group", lambda *place, **options: met.append((*place, options)))
    join(1, 4, "tcp://host:9", device)
    assert met == [(backend, {"init_method": "tcp://host:9", "rank": 1, "world_size": 4})]


# ------------------------------------------------------------------------------------------------------------- two processes

KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": LoraSettings(rank=4)},
    "offload": {"offload": True},
    "divided": {"layout": "packed", "compile": "aot_eager", "recompute": True},
}


def _make(kind: str, role: type[Learner] = Learner) -> Any:
    options = dict(KINDS[kind])
    network = tiny_network(**{key: options.pop(key) for key in ("lora", "compile", "recompute") if key in options})
    together = dist.get_world_size() if kind == "divided" and dist.is_initialized() else 1
    # 7 episodes and small micro-batches: the ranks' shares are not equal and one of the last micro-batches is empty.
    return learner_of(60, network=network, role=role, learning_rate=1e-2, context_parallel=together, **options)


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
        _lead(rank, Path(folder) / "led")
        dist.destroy_process_group()


def _lose_a_segment(path: Path) -> None:
    """The policy computes NaN for one segment, and the reference for another."""
    config = LearnerConfig(packing=PackingConfig(60), loss=LossConfig(kl_coefficient=0.1))
    learner: Any = Learner(tiny_network(critic=False), config, reference=tiny_network(critic=False))
    batch = random_batch()
    batch = replace(batch, sampled=learner.measure(batch).logprobs)
    advantages = np.random.default_rng(1).normal(size=len(batch.positions))
    spoil(learner.network, batch.ids[4])
    spoil(learner.reference, batch.ids[7])
    reference = learner.measure_reference(batch)
    if learner.ranks > 1:
        assert all(isinstance(parameter, DTensor) for parameter in learner.reference.parameters())
    metrics = learner.accumulate(replace(batch, advantages=advantages, reference=reference))
    gradient, seen = gradients(learner), learner.seen
    lost = np.unique(batch.segments[np.isnan(seen.logprobs)]).tolist()
    if learner.rank == 0:
        torch.save({"gradient": gradient, "metrics": metrics, "lost": lost}, path)


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


def _lead(rank: int, folder: Path) -> None:
    """Rank 0 does all there is to do, and the other one follows."""
    if rank:
        follow(_make("lora"))
        return
    leader = _make("lora", Leader)
    assert isinstance(leader, Leader)
    batch = measured_batch(leader)
    leader.measure_reference(batch)
    folder.mkdir()
    leader.update(batch)
    leader.save(folder)
    lost, lost_weights = leader.update(batch), dict(leader.weights())
    leader.load(folder)  # the second update is undone, and made again
    made, weights = leader.update(batch), dict(leader.weights())
    assert made == lost
    assert all(torch.equal(weight, lost_weights[name]) for name, weight in weights.items())
    torch.save({"norms": [made["gradient_norm"]], "weights": weights}, folder / "result.pt")
    leader.dismiss()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    _run(0, 1, str(folder))
    mp.spawn(_run, (2, str(folder)), nprocs=2)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_do_what_one_does_and_take_up_what_the_other_saved(runs: Path, kind: str) -> None:
    one, two = (torch.load(runs / f"{kind}-{ranks}" / "result.pt", weights_only=True) for ranks in (1, 2))
    assert float((one["gradient"] - two["gradient"]).abs().max()) <= 1e-5
    assert float(one["gradient"].abs().max()) > 1e-3
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-5)
    assert one["norms"] == pytest.approx(two["norms"], abs=1e-5)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(two["weights"][name], weight, atol=1e-4, rtol=0)
    again = _make(kind)
    again.load(runs / f"{kind}-2")
    by_two = torch.load(runs / f"{kind}-1-by-2.pt", weights_only=True)
    assert again.updates == by_two["updates"] == 2
    for loaded, saved in ((dict(again.weights()), two["weights"]), (by_two["weights"], one["weights"])):
        assert all(torch.equal(weight, saved[name]) for name, weight in loaded.items())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_what_a_leader_and_its_follower_learn_is_what_one_rank_learns(runs: Path) -> None:
    one, led = (torch.load(runs / name / "result.pt", weights_only=True) for name in ("lora-1", "led"))
    assert led["norms"][-1] == pytest.approx(one["norms"][-1], abs=1e-5)
    for name, weight in one["weights"].items():
        torch.testing.assert_close(led["weights"][name], weight, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_ranks_write_the_adapters_that_one_writes(runs: Path) -> None:
    one, two = (load_file(runs / f"lora-{ranks}" / "adapter_model.safetensors") for ranks in (1, 2))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, atol=1e-4, rtol=0)
    settings = [msgspec.json.decode((runs / f"lora-{ranks}" / "adapter_config.json").read_bytes()) for ranks in (1, 2)]
    for one in settings:
        one["target_modules"] = sorted(one["target_modules"])
    assert settings[0] == settings[1]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("ranks", [1, 2])
def test_moments_on_the_host_change_nothing(runs: Path, ranks: int) -> None:
    beside, host = (torch.load(runs / f"{kind}-{ranks}" / "result.pt", weights_only=True) for kind in ("full", "offload"))
    assert host["norms"] == beside["norms"]
    for rank in range(ranks):  # the checkpoints, moments included
        one, other = (load_file(runs / f"{kind}-{ranks}" / f"learner-{rank:05d}.safetensors") for kind in ("full", "offload"))
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_ranks_leave_out_the_broken_segments_that_one_leaves_out(runs: Path) -> None:
    one, two = (torch.load(runs / f"broken-{ranks}.pt", weights_only=True) for ranks in (1, 2))
    assert one["lost"] == two["lost"] == [4, 7]
    assert one["metrics"] == pytest.approx(two["metrics"], abs=1e-5)
    assert torch.isfinite(two["gradient"]).all()
    assert float((one["gradient"] - two["gradient"]).abs().max()) <= 1e-5
