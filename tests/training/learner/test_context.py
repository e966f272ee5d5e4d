"""Ranks that divide the positions of a micro-batch, over gloo: the gradient of one rank, and of two ranks without it."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tests.training.learner.families import FAMILIES, family_model
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_model, tiny_network

from palestra.errors import PalestraError, UsageError
from palestra.training.algorithms.loss import LossConfig
from palestra.training.learner.batch import Layout, micro_batch
from palestra.training.learner.context import ContextGroup, part_of
from palestra.training.learner.learner import Learner, LearnerConfig
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import LoraSettings, ModelConfig

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning:peft")]

SETTINGS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"layout": "packed"},
    "recompute": {"layout": "packed", "recompute": True},
    "one head of keys": {"layout": "packed", "heads_of_keys": 1},
    "lora": {"lora": LoraSettings(rank=4)},
    "compile": {"layout": "packed", "compile": "aot_eager"},
    "gspo": {"loss": LossConfig(kind="gspo", entropy_coefficient=0.01)},
}
WIDE = ("padded", "packed")
"""The settings that four ranks compute as well."""
SOUND = [kind for kind, family in FAMILIES.items() if not family.obstacle]
REFUSED = {
    "qwen3_5_text": "mixes positions outside of attention",
    "qwen3_next": "mixes positions outside of attention",
    "falcon_h1": "mixes positions outside of attention",
    "sdpa": 'needs model.attention = "segments", got "sdpa"',
    "dynamic": "rotary positions of type dynamic",
    "heads": "divides the heads of attention among ranks, and the model has 3",
    "prefix": "cannot be used with model.share_prefix",
    "three": "needs groups of 3 ranks, but the learner has 2",
}


def make(setting: str, together: int) -> Learner:
    options = dict(SETTINGS[setting])
    heads = options.pop("heads_of_keys", None)
    settings = {key: options.pop(key) for key in ("recompute", "lora", "compile") if key in options}
    network = load_model(ModelConfig(""), tiny_model(num_key_value_heads=heads)) if heads else tiny_network(**settings)
    return learner_of(60, network=network, context_parallel=together, **options)


def family_learner(kind: str, together: int, layout: Layout) -> Learner:
    network = load_model(ModelConfig(""), family_model(kind))
    return learner_of(60, network=network, context_parallel=together, layout=layout)


def result(learner: Learner) -> dict[str, Any]:
    """What a learner computes for a batch."""
    batch = measured_batch(learner)
    measured = learner.measure(batch)
    metrics = learner.accumulate(batch)
    return {
        "gradient": gradients(learner),
        "metrics": metrics,
        "logprobs": torch.from_numpy(measured.logprobs),
        "values": torch.zeros(0) if measured.final_values is None else torch.from_numpy(measured.final_values),
    }


def broken(together: int) -> dict[str, Any]:
    """The policy computes NaN for one segment, and the others are learned from."""
    config = LearnerConfig(context_parallel=together)
    learner = Learner(tiny_network(critic=False), config)
    batch = random_batch()
    batch = replace(batch, sampled=learner.measure(batch).logprobs)
    # With two ranks, the first half of the segment is on the rank that has its beginning.
    spoil(learner.network, batch.ids[4][: len(batch.ids[4]) // together])
    metrics = learner.accumulate(replace(batch, advantages=np.random.default_rng(1).normal(size=len(batch.positions))))
    seen = learner.seen
    assert seen is not None
    lost = np.unique(batch.segments[np.isnan(seen.logprobs)]).tolist()
    return {"gradient": gradients(learner), "metrics": metrics, "lost": lost}


def refused(kind: str) -> str:
    """What the learner answers to what it cannot divide."""
    config, model, together = ModelConfig(""), None, 2
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
    else:
        together = 3
    try:
        learner_of(network=load_model(config, model or tiny_model()), context_parallel=together)
    except PalestraError as error:
        return str(error)
    return ""


def work(rank: int, ranks: int, folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{ranks}", rank=rank, world_size=ranks)
    found: dict[str, Any] = {}
    for together in [1] if ranks == 1 else [2] if ranks == 4 else [1, 2]:
        chosen = WIDE if ranks == 4 else SETTINGS
        found |= {f"{setting} {together}": result(make(setting, together)) for setting in chosen}
        if ranks < 4:
            found[f"broken {together}"] = broken(together)
    if ranks < 4:
        found |= {kind: result(family_learner(kind, ranks, "padded" if ranks == 1 else "packed")) for kind in SOUND}
    if ranks == 2:
        found["refused"] = {kind: refused(kind) for kind in REFUSED}
    if rank == 0:
        torch.save(found, Path(folder) / f"found-{ranks}.pt")
    if ranks > 1:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("context")
    work(0, 1, str(folder))
    for ranks in (2, 4):
        mp.spawn(work, (ranks, str(folder)), nprocs=ranks)
    return {ranks: torch.load(folder / f"found-{ranks}.pt", weights_only=True) for ranks in (1, 2, 4)}


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    size = float(one["gradient"].abs().max())
    assert size > 1e-3
    assert float((one["gradient"] - other["gradient"]).abs().max()) <= 1e-5 * size
    assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("setting", SETTINGS)
def test_ranks_that_divide_micro_batches_compute_what_one_rank_computes(found: Any, setting: str) -> None:
    one = found[1][f"{setting} 1"]
    others = [found[2][f"{setting} 1"], found[2][f"{setting} 2"], *([found[4][f"{setting} 2"]] if setting in WIDE else [])]
    for other in others:
        same(one, other)
        torch.testing.assert_close(other["logprobs"], one["logprobs"], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other["values"], one["values"], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", SOUND)
def test_families_with_plain_attention_can_be_divided(found: Any, kind: str) -> None:
    """Sliding windows, sinks and experts included."""
    same(found[1][kind], found[2][kind])


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_broken_segment_is_left_out(found: Any) -> None:
    one, other = found[1]["broken 1"], found[2]["broken 2"]
    assert one["lost"] == other["lost"] == [4]
    same(one, other)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_divided_is_refused_by_name(found: Any, kind: str) -> None:
    message = found[2]["refused"][kind]
    assert REFUSED[kind] in message
    assert "learner.context_parallel = " in message


def test_one_rank_cannot_divide_anything() -> None:
    with pytest.raises(UsageError, match="needs groups of 2 ranks, but the learner has 1: set --ranks"):
        learner_of(context_parallel=2)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_parts_of_all_ranks_are_the_whole(layout: Layout, size: int) -> None:
    batch = random_batch()
    micro = micro_batch(batch, [0, 3, 2, 5], layout)
    parts = [part_of(micro, ContextGroup(size, rank)) for rank in range(size)]
    joined = np.concatenate([part.input_ids for part, _ in parts], axis=1)
    assert np.array_equal(joined[:, : micro.input_ids.shape[1]], micro.input_ids)
    assert not joined[:, micro.input_ids.shape[1] :].any()
    assert sorted(np.concatenate([own.tokens for _, own in parts])) == list(range(len(micro.tokens)))
    assert sorted(np.concatenate([own.segments for _, own in parts])) == [0, 1, 2, 3]
    for part, own in parts:
        assert np.array_equal(part.input_ids.reshape(-1)[part.ends], micro.input_ids.reshape(-1)[micro.ends[own.segments]])
        assert np.array_equal(part.targets, micro.targets[own.tokens])
        before = micro.position_ids.reshape(-1)[micro.predictors[own.tokens]]
        assert np.array_equal(part.position_ids.reshape(-1)[part.predictors], before)
