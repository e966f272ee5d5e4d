"""What ranks do with shards, shown by a group of one rank: it computes what a learner without a group computes."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_network
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from palestra.recipes.learner import LearnerConfig
from palestra.recipes.model import LoraSettings
from palestra.training.learner.context import ContextGroup
from palestra.training.learner.learner import Learner
from palestra.training.learner.model import ActorCritic, shard
from palestra.training.learner.optimizer import fresh_state, moment_rows
from palestra.training.learner.state import StateReader

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning:peft")]


def sharded(**changes: Any) -> ActorCritic:
    torch.manual_seed(3)  # adapters are drawn
    network = tiny_network(**changes)
    shard(network)
    return network


def plain(**changes: Any) -> ActorCritic:
    torch.manual_seed(3)
    return tiny_network(**changes)


CHANGES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"lora": LoraSettings(rank=2)},
    "bfloat16": {"compute": "bfloat16"},
    "packed": {"layout": "packed"},
    "offload": {"offload": True},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_shards_measure_learn_and_write_what_a_whole_network_does(kind: str, alone: ContextGroup, tmp_path: Path) -> None:
    changes = dict(CHANGES[kind])
    options = {key: changes.pop(key) for key in ("layout", "offload") if key in changes}
    whole, parts = (learner_of(60, network=make(**changes), learning_rate=1e-2, **options) for make in (plain, sharded))
    tolerance = 0.15 if kind == "bfloat16" else 1e-6
    batch = measured_batch(whole)
    torch.testing.assert_close(parts.measure(batch).logprobs, whole.measure(batch).logprobs, atol=tolerance, rtol=0)
    for learner in (whole, parts):
        learner.accumulate(batch)
    size = float(gradients(whole).abs().max())
    assert float((gradients(parts) - gradients(whole)).abs().max()) <= tolerance * size
    assert all(isinstance(parameter, DTensor) for parameter in parts.parameters)
    for learner in (whole, parts):
        learner.optimizer.zero_grad()
    if kind == "bfloat16":
        assert all(parameter.dtype == torch.float32 for parameter in parts.parameters)
        return
    assert parts.update(batch) == pytest.approx(whole.update(batch), rel=1e-5, abs=1e-6)
    expected = dict(whole.weights())
    for name, weight in parts.weights():
        torch.testing.assert_close(weight, expected[name], atol=1e-5, rtol=0, msg=name)
    parts.save(tmp_path)
    again = learner_of(60, network=sharded(**changes), learning_rate=1e-2, **options)
    again.load(tmp_path)
    assert again.update(batch) == parts.update(batch)
    assert all(torch.equal(a.full_tensor(), b.full_tensor()) for a, b in zip(again.parameters, parts.parameters, strict=True))


def test_every_layer_is_a_group_of_parameters_and_keeps_nothing_gathered_after_a_check(alone: ContextGroup) -> None:
    network = sharded()
    layers = network.language_model.get_decoder().layers
    assert all(isinstance(module, FSDPModule) for module in (network, *layers))
    hooks = [part._get_fsdp_state()._fsdp_param_group for part in (network, *layers)]
    assert [len(group.fsdp_params) for group in hooks] == [
        4,
        9,
        9,
    ]  # embedding, last norm, critic; a layer's matrices and norms
    learner_of(network=network, layout="packed")
    assert all(isinstance(parameter, DTensor) for parameter in network.parameters())


def test_a_frozen_copy_in_shards_is_measured_and_stays(alone: ContextGroup) -> None:
    frozen, teacher = sharded(critic=False), sharded(critic=False)
    learner = Learner(plain(), LearnerConfig(), reference=frozen, teacher=teacher)
    expected = learner.measure(random_batch()).logprobs
    for measured in (learner.measure_reference(random_batch()), learner.measure_teacher(random_batch())):
        torch.testing.assert_close(measured, expected, atol=1e-6, rtol=0)
    for network in (frozen, teacher):
        assert not network.training
        assert not any(parameter.requires_grad for parameter in network.parameters())
        assert all(isinstance(parameter, DTensor) for parameter in network.parameters()), "nothing stays gathered"
    spoil(frozen, random_batch().ids[0])
    assert not torch.isfinite(torch.from_numpy(learner.measure_reference(random_batch()))).all()


def test_adapters_are_written_from_shards_as_from_a_whole_network(alone: ContextGroup, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    written = []
    for make in (plain, sharded):
        learner = learner_of(network=make(lora=LoraSettings(rank=2)))
        learner.measure(random_batch())
        (tmp_path / make.__name__).mkdir()
        learner.write_adapters(tmp_path / make.__name__, "bfloat16")
        written.append(load_file(tmp_path / make.__name__ / "adapter_model.safetensors"))
        told = json.loads((tmp_path / make.__name__ / "adapter_config.json").read_text())
        assert (told["r"], told["lora_alpha"], bool(told["target_modules"])) == (2, 32.0, True)
    assert written[0].keys() == written[1].keys()
    assert all(torch.equal(tensor, written[1][name]) for name, tensor in written[0].items())
    assert all(tensor.dtype == torch.bfloat16 for tensor in written[0].values())


@pytest.mark.parametrize("offload", [False, True])
def test_moments_have_the_rows_of_their_parameter(alone: ContextGroup, offload: bool) -> None:
    learner = learner_of(network=sharded(), offload=offload)
    parameter = learner.parameters[0]
    state = fresh_state(learner.optimizer, parameter)
    assert [isinstance(moment, DTensor) for moment in state.values()] == [False, not offload, not offload]
    count, first, _ = (moment_rows(moment, parameter) for moment in state.values())
    assert (count.shape, count.sharded) == ((), False)
    assert (first.rows.shape, first.shape, first.start, first.sharded) == (parameter.shape, tuple(parameter.shape), 0, True)


def test_a_run_that_was_saved_in_shards_is_taken_up_whole(alone: ContextGroup, tmp_path: Path) -> None:
    parts, whole = learner_of(60, network=sharded()), learner_of(60, network=plain())
    parts.update(measured_batch(whole))
    entries = parts.save(tmp_path)
    assert entries == StateReader(tmp_path).files
    whole.load(tmp_path)
    assert whole.updates == 1
    for mine, saved in zip(whole.parameters, parts.parameters, strict=True):
        assert torch.equal(mine, saved.full_tensor())
