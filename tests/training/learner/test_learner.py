"""The learner: exact under any micro-batching, right about what it measures, and the same after a reload."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
import torch
from tests.training.samples import VOCABULARY
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, spoil, tiny_model, tiny_network

from palestra.errors import UsageError
from palestra.foundation.encoding import ints
from palestra.recipes.algorithms import LossConfig
from palestra.recipes.learner import Layout, LearnerConfig, PackingConfig
from palestra.recipes.model import LoraSettings, ModelConfig
from palestra.training.learner.batch import WORTH_SHARING, Batch, micro_batch, plan
from palestra.training.learner.loading import load_model
from palestra.training.learner.model import Inputs, shard
from palestra.training.learner.state import GENERATOR, StateReader

pytestmark = pytest.mark.torch

Aggregation = Literal["token_mean", "sequence_mean", "constant"]


def test_measuring_agrees_with_the_models_own_forward_pass() -> None:
    learner, batch = learner_of(positions=40, temperature=0.7), random_batch()
    measured = learner.measure(batch)
    model = learner.network.language_model
    for segment, ids in enumerate(batch.ids):
        with torch.no_grad():
            logits = model(torch.tensor(np.array([ids]), dtype=torch.int64)).logits[0] / 0.7
        expected = torch.log_softmax(logits, -1)
        for token in np.flatnonzero(batch.segments == segment):
            position = batch.positions[token]
            assert measured.logprobs[token] == pytest.approx(float(expected[position - 1, ids[position]]), abs=1e-5)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo"])
def test_the_gradient_does_not_depend_on_the_micro_batches(aggregation: Aggregation, kind: Any) -> None:
    loss = LossConfig(kind, aggregation=aggregation, kl_coefficient=0.1, entropy_coefficient=0.01, value_clip=0.1)
    whole, counts, parts = None, [], []
    for positions in (10_000, 120, 1):
        learner = learner_of(positions, loss=loss)
        batch = measured_batch(learner)
        counts.append(len(plan(batch, 1, learner.config.packing)[0]))
        metrics = learner.accumulate(batch)
        parts.append(metrics)
        gradient = gradients(learner)
        whole = gradient if whole is None else whole
        assert float((gradient - whole).abs().max()) <= 1e-5
        assert float(whole.abs().max()) > 1e-3
        assert all(metrics[name] == pytest.approx(value, abs=1e-5) for name, value in parts[0].items())
    assert counts[0] == 1
    assert max(counts) == len(batch.ids)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_layouts_recomputation_and_slices_change_nothing(layout: Layout) -> None:
    plain = learner_of()
    plain.accumulate(measured_batch(plain))
    other = learner_of(100, network=tiny_network(recompute=True, head_slice=3), layout=layout)
    other.accumulate(measured_batch(other))
    assert float((gradients(other) - gradients(plain)).abs().max()) <= 1e-5


@pytest.mark.parametrize("first", [True, False])
def test_a_run_may_move_its_moments_to_the_host_and_back(tmp_path: Path, first: bool) -> None:
    whole, part, rest = (learner_of(60, offload=offload, learning_rate=1e-2) for offload in (False, first, not first))
    batch = measured_batch(whole)
    for learner in (whole, part):
        for _ in range(2):
            learner.update(batch)
    part.save(tmp_path)
    rest.load(tmp_path)
    assert whole.update(batch) == rest.update(batch)
    for one, other in zip(whole.parameters, rest.parameters, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("prefix", [0, 5, 40])
def test_a_prefix_computed_once_changes_nothing(prefix: int) -> None:
    plain, sharing = learner_of(), learner_of(network=tiny_network(share_prefix=True))
    batch = measured_batch(plain)
    shared = np.arange(prefix) % VOCABULARY
    longer = tuple(ints(np.concatenate([shared, ids])) for ids in batch.ids)
    batch = replace(batch, ids=longer, positions=batch.positions + prefix)
    passes: list[int] = []
    decoder = sharing.network.language_model.get_decoder()
    decoder.register_forward_pre_hook(lambda _, __, given: passes.append(given["input_ids"].numel()), with_kwargs=True)
    expected, found = plain.measure(batch), sharing.measure(batch)
    assert np.abs(found.logprobs - expected.logprobs).max() <= 1e-5
    assert np.abs(found.final_values - expected.final_values).max() <= 1e-5
    assert len(passes) == (2 if prefix == 40 else 1), "a short prefix is not worth a pass of its own"
    for learner in (plain, sharing):
        learner.accumulate(batch)
    assert float((gradients(sharing) - gradients(plain)).abs().max()) <= 2e-5


def test_sharing_a_prefix_goes_with_neither_recomputation_nor_ranks() -> None:
    with pytest.raises(UsageError, match="recompute"):
        tiny_network(share_prefix=True, recompute=True)
    with pytest.raises(UsageError, match="one rank"):
        shard(tiny_network(share_prefix=True))


def test_an_update_moves_the_policy_towards_what_paid() -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=LossConfig(importance="none"), learning_rate=1e-2)
    batch = random_batch()
    before = learner.measure(batch).logprobs
    advantages = np.where(np.arange(len(before)) % 2 == 0, 1.0, -1.0)
    metrics = learner.update(replace(batch, old=before, advantages=advantages))
    gain = (learner.measure(batch).logprobs - before) * advantages
    assert gain.mean() > 0
    assert metrics["skipped"] == 0
    assert learner.updates == 1


def test_a_gradient_that_is_not_finite_leaves_the_weights_alone() -> None:
    learner = learner_of()
    batch = measured_batch(learner)
    invalid = batch.advantages.copy()
    invalid[3] = math.inf
    before = [parameter.detach().clone() for parameter in learner.parameters]
    metrics = learner.update(replace(batch, advantages=invalid))
    assert metrics["skipped"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, learner.parameters, strict=True))
    assert learner.update(batch)["skipped"] == 0


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({}, [1.0] * 8),
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"warmup": 2, "decay": (2, 6)}, [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ({"decay": (2, 4), "schedule": {"use": "linear", "floor": 0.5}}, [1.0, 1.0, 1.0, 0.75, 0.5, 0.5, 0.5, 0.5]),
        # 0.2 + 0.8·(1 + cos(π·u/4))/2
        (
            {"decay": (0, 4), "schedule": {"use": "cosine", "floor": 0.2}},
            [1.0, 0.6 + 0.4 * math.cos(math.pi / 4), 0.6, 0.6 - 0.4 * math.cos(math.pi / 4), 0.2, 0.2],
        ),
    ],
)
def test_the_rate_rises_and_falls_in_updates(schedule: dict[str, Any], rates: list[float]) -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=LossConfig(), learning_rate=1.0, **schedule)
    nothing = replace(Batch.of([]), old=np.zeros(0), advantages=np.zeros(0))
    assert [learner.update(nothing)["learning_rate"] for _ in rates] == pytest.approx(rates)
    assert learner.optimizer.param_groups[0]["lr"] == pytest.approx(rates[-1])


def _doubling(progress: float) -> float:
    return 2.0 * progress


def test_a_schedule_that_cannot_work_is_refused() -> None:
    learner = learner_of(decay=(0, 2), schedule=f"{__name__}:_doubling")
    learner.updates = 2
    with pytest.raises(UsageError, match=r"learner.schedule must return a factor from 0 to 1, got 2.0"):
        learner.update(measured_batch(learner))
    for decay in ((4, 4), (-1, 4)):
        with pytest.raises(ValueError, match=rf"two numbers of updates, the second one larger, got \[{decay[0]}, 4\]"):
            LearnerConfig(decay=decay)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "constant"])
def test_episodes_without_an_advantage_are_left_out_and_the_gradient_stays(aggregation: Aggregation) -> None:
    loss = LossConfig(aggregation=aggregation)
    skipping, computing = (learner_of(network=tiny_network(critic=False), loss=loss) for _ in range(2))
    batch = replace(measured_batch(skipping), reference=None, values=None, targets=None)
    idle = replace(batch, advantages=np.where(batch.episodes % 2 == 0, 0.0, batch.advantages))
    # An entropy bonus of nearly nothing needs every token, so nothing is left out.
    computing.accumulate(idle, LossConfig(aggregation=aggregation, entropy_coefficient=1e-12))
    passes, seen = skipping._passes, []

    def counting(batch: Batch) -> Any:
        seen.append(batch.count)
        return passes(batch)

    skipping._passes = counting
    skipping.accumulate(idle)
    assert seen == [3]
    torch.testing.assert_close(gradients(skipping), gradients(computing), atol=1e-6, rtol=1e-4)
    before = skipping.seen
    assert before is None, "it was measured already"
    unmeasured = replace(idle, old=None)
    skipping.optimizer.zero_grad()
    skipping.accumulate(unmeasured)
    assert seen == [3, 3]
    measured = skipping.seen
    busy = batch.episodes % 2 == 1
    assert measured.computed.tolist() == busy.tolist()
    assert np.isfinite(measured.logprobs).tolist() == busy.tolist()
    np.testing.assert_allclose(measured.logprobs[busy], skipping.measure(batch).logprobs[busy], atol=1e-5)
    critical = learner_of(network=tiny_network(critic=True), loss=loss)
    critical.accumulate(replace(measured_batch(critical), advantages=idle.advantages, old=None))
    assert critical.seen.computed is None, "a critic learns from every episode"


def test_the_critics_final_value_is_read_at_the_end_of_the_last_segment() -> None:
    learner, batch = learner_of(positions=60), random_batch()
    measured = learner.measure(batch)
    network = learner.network
    for episode in range(batch.count):
        ids = torch.tensor(np.array([batch.ids[batch.last_segment_of(episode)]]), dtype=torch.int64)
        with torch.no_grad():
            hidden = network.language_model.get_decoder()(ids).last_hidden_state
            expected = float(network.critic(hidden)[0, -1, 0])
        assert measured.final_values[episode] == pytest.approx(expected, abs=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_lora_trains_adapters_only_and_the_reference_is_where_it_started() -> None:
    network = load_model(ModelConfig("", lora=LoraSettings(rank=4)), tiny_model())
    learner = learner_of(network=network, loss=LossConfig(kl_coefficient=0.1), learning_rate=1e-2)
    start = tiny_network(critic=False)
    batch = random_batch()
    first = learner_of(network=start).measure(batch).logprobs
    np.testing.assert_allclose(learner.measure(batch).logprobs, first, atol=1e-5)
    assert sum(p.numel() for p in learner.parameters) < 0.5 * sum(p.numel() for p in start.parameters())
    for _ in range(3):
        learner.update(replace(batch, old=first, reference=first, advantages=np.ones(len(first))))
    now = learner.measure(batch).logprobs
    assert np.abs(now - first).max() > 1e-3
    np.testing.assert_allclose(learner.measure_reference(batch), first, atol=1e-5)
    merged = tiny_model()
    merged.load_state_dict(dict(learner.weights()), strict=False)  # without the tied head
    again = learner_of(network=load_model(ModelConfig(""), merged)).measure(batch).logprobs
    np.testing.assert_allclose(again, now, atol=1e-5)


def test_a_reference_is_asked_for() -> None:
    with pytest.raises(UsageError, match="reference"):
        learner_of().measure_reference(random_batch())
    frozen = tiny_network(critic=False)
    learner = learner_of()
    learner.reference = frozen
    np.testing.assert_allclose(learner.measure_reference(random_batch()), learner.measure(random_batch()).logprobs, atol=1e-6)


def test_an_update_without_measurements_is_refused() -> None:
    with pytest.raises(UsageError, match="advantages"):
        learner_of().update(random_batch())


@pytest.mark.parametrize("positions", [10_000, 40])
def test_an_update_measures_its_own_batch(positions: int) -> None:
    """Without old log-probs, the pass of the update gives them: same gradient, same measurements."""
    first, once = (learner_of(positions, network=tiny_network(critic=False), loss=LossConfig()) for _ in range(2))
    batch = random_batch()
    measured = first.measure(batch)
    sampled = measured.logprobs + 0.1 * np.random.default_rng(0).normal(size=len(batch.positions))
    batch = replace(batch, sampled=sampled, advantages=np.random.default_rng(1).normal(size=len(sampled)))
    expected = first.accumulate(replace(batch, old=measured.logprobs))
    found = once.accumulate(batch)
    torch.testing.assert_close(gradients(once), gradients(first), atol=1e-6, rtol=1e-4)
    assert found == pytest.approx(expected, abs=1e-6)
    assert first.seen is None
    np.testing.assert_allclose(once.seen.logprobs, measured.logprobs, atol=1e-5)
    np.testing.assert_allclose(once.seen.entropies, measured.entropies, atol=1e-5)


def test_a_segment_of_another_sampler_is_left_out_of_an_update_that_measures_itself() -> None:
    batch = random_batch()
    learner = learner_of(network=tiny_network(critic=False), loss=LossConfig())
    sampled = learner.measure(batch).logprobs
    other = batch.segments == 0
    found = []
    for wrong, advantage in ((3.0, 1.0), (3.0, 50.0), (0.0, 50.0)):
        advantages = np.where(other, advantage, 1.0)
        learner.optimizer.zero_grad()
        learner.accumulate(replace(batch, sampled=np.where(other, sampled - wrong, sampled), advantages=advantages))
        found.append(gradients(learner))
    assert torch.equal(found[0], found[1]), "what the segment is worth does not matter"
    assert not torch.allclose(found[1], found[2], atol=1e-3)


def test_a_batch_without_anything_to_learn_still_runs() -> None:
    learner = learner_of()
    empty = Batch.of([])
    none = np.zeros(0)
    metrics = learner.update(replace(empty, old=none, advantages=none, reference=none))
    assert metrics["loss"] == 0
    assert metrics["gradient_norm"] == 0


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
def test_a_reloaded_learner_goes_on_bit_for_bit(tmp_path: Path, lora: LoraSettings | None) -> None:
    def fresh() -> Any:
        return learner_of(network=tiny_network(lora=lora), learning_rate=1e-2)

    first = fresh()
    batch = measured_batch(first)
    first.update(batch)
    torch.manual_seed(99)
    first.save(tmp_path)
    noise = torch.rand(4)
    metrics = first.update(batch)
    second = fresh()
    second.load(tmp_path)
    assert torch.equal(torch.rand(4), noise)
    assert second.updates == 1
    assert second.update(batch) == metrics
    for (name, a), (_, b) in zip(first.network.named_parameters(), second.network.named_parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
def test_a_checkpoint_of_adapters_leaves_the_frozen_weights_out(tmp_path: Path) -> None:
    learner = learner_of(network=tiny_network(lora=LoraSettings(rank=4)))
    learner.update(measured_batch(learner))
    learner.save(tmp_path)
    trained = sum(parameter.numel() * parameter.element_size() for parameter in learner.parameters)
    assert 3 * trained <= (tmp_path / "learner-00000.safetensors").stat().st_size <= 3 * trained + 5056 + 64 * 1024
    names = StateReader(tmp_path).names() - {GENERATOR}
    assert all("lora_" in name or "critic" in name for name in names)


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (PackingConfig(), (16_384, "padded")),
        (LoraSettings(), (16, 32.0, "all-linear")),
        (ModelConfig("m"), ("m", "cpu", None, False, "float32", False, "", "segments", 2048, False)),
        (LearnerConfig(), (1e-6, 0, None, "linear", (0.9, 0.95), 0.0, False, 1, 1.0, 1.0, PackingConfig(), LossConfig())),
    ],
    ids=lambda made: type(made).__name__,
)
def test_defaults(made: Any, fields: tuple[object, ...]) -> None:
    assert msgspec.structs.astuple(made) == fields


def test_a_new_learner_has_made_no_update_measures_first_and_its_critic_expects_nothing() -> None:
    made = learner_of(network=load_model(ModelConfig("", critic=True), tiny_model()))
    assert (made.updates, made.measures_first, made.seen, made.rank, made.ranks) == (0, True, None, 0, 1)
    values = made.measure(random_batch()).values
    assert not values.any()


def test_an_entropy_has_a_gradient_only_if_the_loss_asks_for_it() -> None:
    network, micro = tiny_network(), micro_batch(random_batch(), [0, 1], "padded")
    inputs = Inputs.of(micro, torch.device("cpu"))
    found = [network(inputs, 1.0, *asked).statistics.entropy.requires_grad for asked in ((), (False,), (True,))]
    assert found == [False, False, True]


@pytest.mark.parametrize("shared", [WORTH_SHARING - 1, WORTH_SHARING, 40])
@pytest.mark.parametrize("first_sampled", [10, 60])
def test_a_prefix_ends_before_the_first_position_that_predicts_a_token(shared: int, first_sampled: int) -> None:
    rows = [ints([*range(shared), 100 + row, *range(30, 50)]) for row in range(3)]
    first_sampled = min(first_sampled, len(rows[0]) - 1)
    batch = Batch(
        tuple(rows), np.arange(3), 3, np.arange(3), np.full(3, first_sampled), np.zeros(3, dtype=np.int64), np.zeros(3)
    )
    common = min(shared, first_sampled - 1)
    assert micro_batch(batch, [0, 1, 2], "padded").prefix == (common if common >= WORTH_SHARING else 0)
    assert micro_batch(batch, [1], "padded").prefix == micro_batch(batch, [0, 1], "packed").prefix == 0


def test_the_gradient_is_scaled_down_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[float] = []
    for clip in (1e9, 0.5):
        learner = learner_of(gradient_clip=clip)
        monkeypatch.setattr(learner.optimizer, "step", lambda held=learner: lengths.append(float(gradients(held).norm())))
        norm = learner.update(measured_batch(learner))["gradient_norm"]
        assert norm > 1.0
        assert all(parameter.grad is None for parameter in learner.parameters)
    assert lengths == pytest.approx([norm, 0.5], rel=1e-4)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_a_segment_that_is_computed_as_nan_is_left_out_and_counted(layout: str) -> None:
    def make() -> Any:
        return learner_of(network=tiny_network(critic=False), loss=LossConfig(), layout=layout, learning_rate=1e-2)

    sound, broken = make(), make()
    batch = random_batch()
    batch = replace(batch, sampled=sound.measure(batch).logprobs)
    advantages = np.random.default_rng(1).normal(size=len(batch.positions))
    lost = 4
    spoil(broken.network, batch.ids[lost])
    without = np.where(batch.segments == lost, 0.0, advantages)
    sound.accumulate(replace(batch, advantages=without))
    found = broken.accumulate(replace(batch, advantages=advantages))
    assert found["not_finite"] == pytest.approx(1 / len(batch.ids))
    assert float((gradients(broken) - gradients(sound)).abs().max()) <= 1e-6
    assert float(gradients(sound).abs().max()) > 1e-3
    assert np.array_equal(np.isnan(broken.seen.logprobs), batch.segments == lost)
    broken.optimizer.zero_grad()
    metrics = broken.update(replace(batch, advantages=advantages))
    assert metrics["skipped"] == 0
    assert math.isfinite(metrics["gradient_norm"])


def test_a_segment_that_is_nan_under_the_reference_is_left_out_alone() -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=LossConfig(kl_coefficient=0.1), learning_rate=1e-2)
    batch = measured_batch(learner)
    lost = batch.segments == 4
    sound = replace(batch, reference=np.where(lost, np.nan, batch.reference))
    learner.accumulate(replace(batch, advantages=np.where(lost, np.nan, batch.advantages)))
    assert not torch.isfinite(gradients(learner)).all()  # what a NaN does that reaches the loss
    learner.optimizer.zero_grad()
    metrics = learner.update(sound)
    assert metrics["skipped"] == 0
    assert metrics["not_finite"] == pytest.approx(1 / len(batch.ids))
    nothing = learner.update(replace(batch, reference=np.full(len(batch.positions), np.nan)))
    assert nothing["skipped"] == nothing["not_finite"] == 1


def test_the_share_of_broken_segments_counts_those_with_sampled_tokens() -> None:
    learner = learner_of(network=tiny_network(critic=False), loss=LossConfig(kl_coefficient=0.1))
    batch = measured_batch(learner, episodes=3)
    silent = replace(batch, ids=(*batch.ids, batch.ids[0]), owners=np.append(batch.owners, batch.owners[-1]))
    broken = replace(silent, reference=np.where(silent.segments == 0, np.nan, silent.reference))
    assert learner.accumulate(broken)["not_finite"] == pytest.approx(1 / len(batch.ids))
