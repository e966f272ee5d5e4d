"""Ranks that divide the positions of a micro-batch compute what one rank computes; here they are threads of one process.

``test_ranks.py`` does it over gloo, with shards.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.learner.families import FAMILIES, family_model
from tests.training.learner.together import in_threads
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_model, tiny_network

from palestra.errors import PalestraError, UsageError
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import Layout
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.batch import micro_batch
from palestra.training.learner.context import ContextGroup, context_group, part_of
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import ActorCritic

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning:peft")]

SETTINGS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"layout": "packed"},
    "recompute": {"layout": "packed", "recompute": True},
    "one head of keys": {"layout": "packed", "heads_of_keys": 1},
    "lora": {"lora": LoraSettings(rank=4)},
    "gspo": {"loss": LossConfig(kind="gspo", entropy_coefficient=0.01), "critic": False},
}
SOUND = [kind for kind, family in FAMILIES.items() if not family.obstacle]


def network_of(setting: str) -> ActorCritic:
    if setting in FAMILIES:
        return load_model(ModelConfig(""), family_model(setting))
    chosen = SETTINGS[setting]
    if heads := chosen.get("heads_of_keys"):
        return load_model(ModelConfig(""), tiny_model(num_key_value_heads=heads))
    torch.manual_seed(3)  # adapters are drawn
    return tiny_network(**{key: chosen[key] for key in ("recompute", "lora", "critic") if key in chosen})


def computed(network: ActorCritic, setting: str, together: int) -> tuple[torch.Tensor, dict[str, float], Any]:
    """The gradient, the metrics and the measurements of a rank."""
    chosen = SETTINGS.get(setting, {"layout": "packed"})
    options = {key: chosen[key] for key in ("layout", "loss") if key in chosen}
    learner = learner_of(60, network=network, context_parallel=together, **options)
    batch = measured_batch(learner)
    measured, metrics = learner.measure(batch), learner.accumulate(batch)
    return gradients(learner), metrics, measured


@pytest.mark.parametrize(
    ("setting", "ranks", "together"),
    [
        *((setting, 2, 2) for setting in [*SETTINGS, *SOUND]),
        *((setting, *sizes) for setting in ("padded", "packed") for sizes in ((2, 1), (3, 1), (4, 2))),
    ],
)
def test_the_gradients_of_all_ranks_add_up_to_that_of_one(
    setting: str, ranks: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient, metrics, measured = computed(network_of(setting), setting, 1)
    networks = [network_of(setting) for _ in range(ranks)]
    found = in_threads(ranks, lambda rank: computed(networks[rank], setting, together), monkeypatch)
    size = float(gradient.abs().max())
    assert size > 1e-3
    assert float((sum(part for part, _, _ in found) - gradient).abs().max()) <= 1e-5 * size
    for part, rank_metrics, rank_measured in found:
        assert not torch.equal(part, gradient)
        assert rank_metrics == pytest.approx(metrics, rel=1e-5, abs=1e-6)
        for name in ("logprobs", "entropies", "values", "final_values"):
            if (expected := getattr(measured, name)) is not None:
                np.testing.assert_allclose(getattr(rank_measured, name), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("together", [1, 2])
def test_all_ranks_leave_out_a_segment_that_one_of_them_computes_as_nan(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def learned(network: ActorCritic, together: int) -> tuple[torch.Tensor, dict[str, float], list[int]]:
        learner = learner_of(network=network, loss=LossConfig(), context_parallel=together)
        learner.accumulate(batch)
        metrics, seen = learner.accumulate(batch), learner.seen
        return gradients(learner), metrics, np.unique(batch.segments[np.isnan(seen.logprobs)]).tolist()

    batch = random_batch()
    sampled = learner_of(network=tiny_network(critic=False)).measure(batch).logprobs
    advantages = np.random.default_rng(1).normal(size=len(sampled))
    batch = replace(batch, sampled=sampled, advantages=advantages)
    networks = [tiny_network(critic=False) for _ in range(3)]
    for network in networks:  # the first half of the segment is on the rank that has its beginning
        spoil(network, batch.ids[4][: len(batch.ids[4]) // 2])
    gradient, metrics, lost = learned(networks[2], 1)
    found = in_threads(2, lambda rank: learned(networks[rank], together), monkeypatch)
    assert lost == [4]
    assert metrics["not_finite"] == 1 / len(batch.ids)
    assert all(rank_lost == lost and rank_metrics == pytest.approx(metrics, abs=1e-6) for _, rank_metrics, rank_lost in found)
    assert float((found[0][0] + found[1][0] - gradient).abs().max()) <= 1e-5 * float(gradient.abs().max())


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("qwen3_5_text", "mixes positions outside of attention"),
        ("qwen3_next", "mixes positions outside of attention"),
        ("falcon_h1", "mixes positions outside of attention"),
        ("sdpa", 'needs model.attention = "segments", got "sdpa"'),
        ("dynamic", "rotary positions of type dynamic"),
        ("heads", "divides the heads of attention among ranks, and the model has 3"),
        ("prefix", "cannot be used with model.share_prefix"),
        ("three", "needs groups of 3 ranks, but the learner has 2"),
    ],
)
def test_what_cannot_be_divided_is_refused_by_name(kind: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, model = ModelConfig(""), None
    if kind in FAMILIES:
        model = family_model(kind)
    elif kind == "sdpa":
        config = ModelConfig("", attention="sdpa")
    elif kind == "prefix":
        config = ModelConfig("", share_prefix=True)
    elif kind == "dynamic":
        model = tiny_model(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    elif kind == "heads":
        model = tiny_model(hidden_size=48, num_attention_heads=3, num_key_value_heads=1)
    networks = [load_model(config, model or tiny_model())] * 2
    together = 3 if kind == "three" else 2
    with pytest.raises(PalestraError) as refused:
        in_threads(2, lambda rank: learner_of(network=networks[rank], context_parallel=together), monkeypatch)
    assert named in str(refused.value)
    assert f"learner.context_parallel = {together}" in str(refused.value)


def test_one_rank_cannot_divide_anything() -> None:
    assert context_group(1) is None
    with pytest.raises(UsageError, match="needs groups of 2 ranks, but the learner has 1: set --ranks"):
        learner_of(context_parallel=2)


def test_neighbors_form_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def placed(rank: int) -> tuple[int, int, list[int]]:
        context: Any = context_group(2)
        return context.size, context.rank, context.group.members

    assert in_threads(4, placed, monkeypatch) == [(2, 0, [0, 1]), (2, 1, [0, 1]), (2, 0, [2, 3]), (2, 1, [2, 3])]


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_whole_rows_of_own_heads_and_back(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before attention every rank has some heads of all positions, after it all heads of its own positions."""
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(1, 4, 6, 3, generator=generator), torch.randn(1, keys, 6, 3, generator=generator)

    def exchanged(rank: int) -> tuple[torch.Tensor, ...]:
        context: Any = context_group(2)
        own = query.chunk(2, dim=2)[rank].clone().requires_grad_()
        whole, keys_of_rank, _ = context.with_whole_rows(own, *[key.chunk(2, dim=2)[rank]] * 2)
        back = context.with_own_positions(whole.transpose(1, 2))
        (back * (1.0 + query.chunk(2, dim=2)[rank].transpose(1, 2))).sum().backward()
        torch.testing.assert_close(own.grad, 1.0 + own.detach())
        torch.testing.assert_close(back.transpose(1, 2), own)
        assert context.own_heads(torch.arange(4)).tolist() == [2 * rank, 2 * rank + 1]
        assert context.largest(torch.tensor(float(rank))) == 1.0
        return whole.detach(), keys_of_rank

    found = in_threads(2, exchanged, monkeypatch)
    torch.testing.assert_close(torch.cat([whole for whole, _ in found], dim=1), query)
    repeated = key if keys > 1 else key.repeat_interleave(2, dim=1)
    torch.testing.assert_close(torch.cat([keys_of_rank for _, keys_of_rank in found], dim=1), repeated)


def test_numbers_are_gathered_and_each_rank_gets_the_gradient_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def gathered(rank: int) -> list[float]:
        context: Any = context_group(2)
        own: Any = torch.tensor([[5.0, 7.0], [3.0]][rank], requires_grad=True)
        whole = context.gathered(own, torch.tensor([[2, 0], [1]][rank]), 4)
        (whole * torch.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
        assert own.grad.tolist() == [[100.0, 1.0], [10.0]][rank]
        return list(whole.tolist())

    assert in_threads(2, gathered, monkeypatch) == [[7.0, 3.0, 5.0, 0.0]] * 2


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_parts_of_all_ranks_are_the_whole(layout: Layout, size: int) -> None:
    micro = micro_batch(random_batch(), [0, 3, 2, 5], layout)
    parts = [part_of(micro, ContextGroup(size, rank)) for rank in range(size)]
    length = micro.input_ids.shape[1]
    for name in ("input_ids", "position_ids"):
        joined = np.concatenate([getattr(part, name) for part, _ in parts], axis=1)
        assert np.array_equal(joined[:, :length], getattr(micro, name))
        assert not joined[:, length:].any()
    width = joined.shape[1]
    assert width - length < size
    assert all((own.token_count, own.segment_count) == (len(micro.tokens), 4) for _, own in parts)
    assert sorted(np.concatenate([own.tokens for _, own in parts])) == list(range(len(micro.tokens)))
    assert sorted(np.concatenate([own.segments for _, own in parts])) == [0, 1, 2, 3]
    for part, own in parts:
        assert (part.prefix, part.attention_mask) == (0, None)
        assert part.bounds == ((0, width) if micro.bounds is None else (*micro.bounds[:-1], width))
        assert np.array_equal(part.input_ids.reshape(-1)[part.ends], micro.input_ids.reshape(-1)[micro.ends[own.segments]])
        assert np.array_equal(part.targets, micro.targets[own.tokens])
        before = micro.position_ids.reshape(-1)[micro.predictors[own.tokens]]
        assert np.array_equal(part.position_ids.reshape(-1)[part.predictors], before)
