"""Seventeen ways in which published trainers of multi-turn agents go wrong; each is a test of ours."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.training.samples import VOCABULARY, random_group, random_trajectory

from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import AdvantageConfig, PartialGroups
from palestra.recipes.learner import PackingConfig
from palestra.training.algorithms.advantage import Credit, advantages, whiten
from palestra.training.algorithms.groups import GroupMember, episode_of, select
from palestra.training.algorithms.validity import InvalidSample, SampleLimits, quarantine
from palestra.training.learner.batch import Batch, micro_batch, plan, token_weights
from palestra.trajectory import Completion, Finish, Segment, Span, StopReason, Task, Trajectory, TrajectoryGroup, Turn

GROUP_METHODS: tuple[str, ...] = ("grpo", "dr_grpo", "rloo", "reinforce_pp_group", "gigpo")


def trajectory(*rewards: float, action: int = 2, observation: int = 3, **changes: Any) -> Trajectory:
    """Turns of ``action`` sampled tokens, each FOLLOWED by ``observation`` tokens of the environment, the last one too."""
    ids, spans = [1, 2, 3], []
    for turn in range(len(rewards)):
        spans.append(Span(len(ids), len(ids) + action, turn))
        ids += [4 + turn] * action + [20] * observation
    segment = Segment(ints(ids), tuple(spans), floats([-1.0] * (action * len(rewards))))
    turns = tuple(Turn(f"o{k}", Completion(f"a{k}"), r) for k, r in enumerate(rewards))
    whole = Trajectory(Task("game:x"), StopReason.TERMINATED, turns=turns, segments=(segment,))
    return msgspec.structs.replace(whole, **changes)


def view(some: Trajectory, **changes: Any) -> GroupMember:
    episode: Any = episode_of(some)
    return replace(episode, **changes)  # type: ignore[no-any-return]


def credit(episodes: list[GroupMember], config: AdvantageConfig) -> list[Credit]:
    return [c for c in advantages([episodes], config)[0] if c is not None]


def test_pitfall_01_the_reward_is_on_the_last_action_token() -> None:
    # The segment ends with observation tokens; a reward on the last token of the SEQUENCE would reach nobody.
    some = trajectory(0.0, 1.0)
    assert not some.segments[0].mask[-1]
    values = np.zeros(4)
    config = AdvantageConfig("ppo_token", gae_lambda=0.0, whiten=False)
    assert credit([view(some, values=values)], config)[0].per_token().tolist() == [0.0, 0.0, 0.0, 1.0]
    other = trajectory(0.0, 0.0)
    first, second = credit([view(some), view(other)], AdvantageConfig("reinforce_pp"))
    assert first.per_token().tolist() == [1.0] * 4
    assert second.per_token().tolist() == [-1.0] * 4


@pytest.mark.torch
def test_pitfall_02_the_turns_value_is_read_at_its_last_state_token() -> None:
    import torch
    from tests.training.tiny import learner_of

    learner = learner_of()
    some = trajectory(0.0, 1.0)
    measured = learner.measure(Batch.of([some]))
    network = learner.network
    with torch.no_grad():
        ids = torch.tensor(np.array([some.segments[0].ids]), dtype=torch.int64)
        everywhere = network.critic(network.language_model.get_decoder()(ids).last_hidden_state)[0, :, 0].numpy()
    # Turn 0 begins at position 3 and turn 1 at 8: their states end at 2 and 7. Neither is position 0, nor a constant.
    expected = everywhere[[2, 7]]
    np.testing.assert_allclose(measured.values[[0, 2]], expected, atol=1e-5)
    config = AdvantageConfig("ppo_turn", discount=0.5, gae_lambda=0.0, whiten=False)
    got = credit([view(some, values=measured.values)], config)[0].advantages
    np.testing.assert_allclose(got, [0.5 * expected[1] - expected[0], 1.0 - expected[1]], atol=1e-5)
    assert abs(expected[0] - expected[1]) > 1e-3


@pytest.mark.parametrize("method", ["reinforce", "rebn", "reinforce_pp", "ppo_turn", "ppo_token"])
def test_pitfall_03_environment_tokens_have_no_loss_whitening_discount_or_kl(method: str) -> None:
    def run(observation: int) -> tuple[list[float], list[float], int]:
        some = [trajectory(0.0, 1.0, observation=observation), trajectory(0.5, 0.0, observation=2 * observation)]
        episodes = [view(t, values=np.arange(4.0), kl=np.ones(4)) for t in some]
        config = AdvantageConfig(method, discount=0.9, kl_in_reward=0.1)
        batch = Batch.of(some)
        flat = np.concatenate([c.per_token() for c in credit(episodes, config)])
        return flat.tolist(), token_weights(batch, "token_mean", 1).tolist(), len(batch.positions)

    assert run(1) == run(50)
    assert run(50)[2] == 8


@pytest.mark.torch
def test_pitfall_04_a_token_is_predicted_from_the_position_before_it() -> None:
    import torch
    from tests.training.tiny import learner_of

    learner, some = learner_of(), trajectory(0.0, 1.0)
    segment = some.segments[0]
    with torch.no_grad():
        logits = learner.network.language_model(torch.tensor(np.array([segment.ids]), dtype=torch.int64)).logits[0]
    table = torch.log_softmax(logits, -1).numpy()
    places = np.flatnonzero(segment.mask)
    measured = learner.measure(Batch.of([some])).logprobs
    np.testing.assert_allclose(measured, table[places - 1, segment.ids[places]], atol=1e-5)
    assert np.abs(measured - table[places, segment.ids[places]]).max() > 1e-2


@pytest.mark.parametrize("method", GROUP_METHODS)
def test_pitfall_05_singleton_and_constant_groups_teach_nothing(method: str) -> None:
    config = AdvantageConfig(method)
    assert credit([view(trajectory(0.0, 1.0))], config)[0].advantages.tolist() == [0.0, 0.0]
    # 0.1 added three times is not 0.3 to the last bit: rounding must not become an advantage of one.
    constant = [view(trajectory(0.1, 0.1, 0.1)), view(trajectory(0.3, 0.0, 0.0)), view(trajectory(0.1, 0.1, 0.1))]
    if method != "gigpo":
        for found in credit(constant, config):
            np.testing.assert_allclose(found.advantages, 0.0, atol=1e-12)


def test_pitfall_06_every_standard_deviation_is_the_biased_one() -> None:
    # 0 and 2: biased std 1, unbiased 1.414
    assert whiten(np.array([0.0, 2.0])).tolist() == [-1.0, 1.0]
    pair = [view(trajectory(0.0)), view(trajectory(2.0))]
    for method in ("rebn", "grpo", "reinforce_pp", "reinforce_pp_group"):
        config = AdvantageConfig(method, epsilon=0.0)
        assert [found.advantages[0] for found in credit(pair, config)] == [-1.0, 1.0], method


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("positions", [20, 60, 10_000])
def test_pitfall_07_the_token_count_is_that_of_all_ranks_and_micro_batches(ranks: int, positions: int) -> None:
    rng = np.random.default_rng(0)
    batch = Batch.of([random_trajectory(rng, turns=1 + m % 4, member=m) for m in range(9)])
    weights = token_weights(batch, "token_mean", 1)
    losses = rng.normal(size=len(weights))
    shares = plan(batch, ranks, PackingConfig(positions))
    parts = [micro_batch(batch, members, "padded").tokens for share in shares for members in share]
    assert sum((weights[part] * losses[part]).sum() for part in parts) == pytest.approx(losses.mean(), abs=1e-12)


@pytest.mark.torch
def test_pitfall_08_a_micro_batch_without_trainable_tokens_still_runs_backward() -> None:
    from tests.training.tiny import gradients, learner_of

    learner = learner_of()
    none = np.zeros(0)
    learner.accumulate(replace(Batch.of([]), old=none, advantages=none, reference=none, values=none, targets=none))
    assert all(parameter.grad is not None for parameter in learner.parameters)
    assert float(gradients(learner).abs().max()) == 0.0


def test_pitfall_09_a_turn_cut_by_length_trains_no_end_of_turn_token() -> None:
    end_of_turn = 30
    segment = Segment(ints([1, 2, 7, 8, 9]), (Span(2, 5, 0),), floats([-1, -1, -1]))
    turn = Turn("o", Completion("long", finish=Finish.LENGTH), 0.0)
    cut = Trajectory(Task("game:x"), StopReason.LENGTH_CUT, turns=(turn,), segments=(segment,))
    micro = micro_batch(Batch.of([cut]), (0,), "padded")
    assert micro.targets.tolist() == [7, 8, 9]
    assert end_of_turn not in micro.input_ids


@pytest.mark.parametrize("method", ["ppo_turn", "ppo_token", "reinforce", "rebn"])
def test_pitfall_10_a_cut_episode_has_a_future_and_an_ended_one_has_none(method: str) -> None:
    config = AdvantageConfig(method, discount=0.5, whiten=False)
    filler = [view(trajectory(reward), values=np.zeros(2)) for reward in (7.0, 0.0)]

    def last(stop: StopReason, final: float) -> float:
        episode = view(trajectory(1.0, stop=stop), values=np.zeros(2), final_value=final)
        return float(credit([episode, *filler], config)[0].per_token()[-1])

    assert last(StopReason.TERMINATED, 10.0) == last(StopReason.TERMINATED, 0.0)
    for stop in (StopReason.TURN_LIMIT, StopReason.TRUNCATED, StopReason.TOKEN_LIMIT, StopReason.CONTEXT_OVERFLOW):
        assert last(stop, 10.0) != last(stop, 0.0)
    assert trajectory(1.0, stop=StopReason.ERROR).reward is None


def test_pitfall_11_a_group_shares_its_task() -> None:
    mine, stranger = trajectory(1.0), trajectory(1.0, task=Task("game:x", seed=9), member=1)
    group = TrajectoryGroup(Task("game:x"), (mine, stranger))
    assert quarantine([group], SampleLimits(VOCABULARY, 99)) == [[None, InvalidSample.WRONG_TASK]]


def test_pitfall_12_an_episode_in_several_sequences_counts_once() -> None:
    rng = np.random.default_rng(0)
    whole, split = random_trajectory(rng, turns=4, segments=1), random_trajectory(rng, turns=4, segments=4, member=1)
    batch = Batch.of([whole, split])
    weights = token_weights(batch, "sequence_mean", 1)
    assert [weights[batch.tokens_of(e)].sum() for e in range(2)] == pytest.approx([0.5, 0.5])
    assert token_weights(batch, "constant", 100)[0] == pytest.approx(1 / (2 * 100))
    # And once in its group's statistics: R = 1 and 0 give ±0.5, in however many segments the first lies.
    one = trajectory(0.0, 1.0)
    pieces = msgspec.structs.replace(one, segments=tuple(_segment_of(one, turn) for turn in (0, 1)))
    for member in (one, pieces):
        got = credit([view(member), view(trajectory(0.0))], AdvantageConfig("dr_grpo"))
        assert [float(found.advantages[0]) for found in got] == [0.5, -0.5]


def _segment_of(some: Trajectory, turn: int) -> Segment:
    span = some.segments[0].spans[turn]
    return Segment(ints(some.segments[0].ids[: span.stop]), (span,), floats([-1.0, -1.0]))


def test_pitfall_13_statistics_come_before_any_sub_sampling() -> None:
    rng = np.random.default_rng(0)
    groups = [random_group(rng, 5, group=g) for g in range(3)]
    episodes = [[episode_of(member) for member in group.members] for group in groups]
    selection = select(episodes, PartialGroups("at_least", 2))
    assert selection.counts.used == selection.counts.members == 15
    credits = [c for row in advantages(episodes, AdvantageConfig("grpo")) for c in row if c is not None]
    batch: Any = Batch.of([member for group in groups for member in group.members])
    batch = replace(batch, advantages=np.concatenate([c.per_token() for c in credits]))
    parts = batch.split(4, np.random.default_rng(1))
    # Mini-batches only share out what was worked out over whole groups.
    shared = np.sort(np.concatenate([part.advantages for part in parts if part.advantages is not None]))
    np.testing.assert_array_equal(shared, np.sort(batch.advantages))


@pytest.mark.torch
def test_pitfall_14_exponents_are_clamped() -> None:
    import torch

    from palestra.recipes.algorithms import LossConfig
    from palestra.training.algorithms.loss import kl_estimate, log_ratio

    far, near = torch.tensor([-500.0, 0.0]), torch.tensor([0.0, -500.0])
    assert log_ratio(far, near).tolist() == [-20.0, 20.0]
    assert torch.isfinite(torch.exp(log_ratio(far, near))).all()
    assert torch.isfinite(kl_estimate(far, near, "k3")).all()
    assert LossConfig().importance_cap == 2.0


@pytest.mark.torch
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.3])
def test_pitfall_15_sampler_and_trainer_divide_by_the_same_temperature(temperature: float) -> None:
    import torch
    from tests.training.tiny import learner_of

    learner, some = learner_of(temperature=temperature), trajectory(0.0, 1.0)
    segment = some.segments[0]
    with torch.no_grad():
        logits = learner.network.language_model(torch.tensor(np.array([segment.ids]), dtype=torch.int64)).logits[0]
    places = np.flatnonzero(segment.mask)
    recorded = torch.log_softmax(logits / temperature, -1).numpy()[places - 1, segment.ids[places]]
    np.testing.assert_allclose(np.exp(learner.measure(Batch.of([some])).logprobs - recorded), 1.0, atol=1e-5)


def test_pitfall_16_ids_and_log_probs_are_equally_long() -> None:
    with pytest.raises(ValueError, match="3 sampled tokens but 2 log-probs"):
        Segment(ints([1, 2, 3, 4]), (Span(1, 4, 0),), floats([-1, -1]))
    batch = Batch.of([trajectory(1.0)])
    with pytest.raises(ValueError, match="2 sampled tokens but 1 old"):
        replace(batch, old=np.zeros(1))


def test_pitfall_17_what_is_over_long_is_cut_and_counted_never_dropped_silently() -> None:
    overflow = trajectory(0.0, 0.0, 0.5, stop=StopReason.CONTEXT_OVERFLOW)
    assert overflow.truncated
    assert overflow.reward == 0.5
    assert episode_of(overflow) is not None
    # Longer than a whole micro-batch: it gets one to itself.
    batch = Batch.of([overflow, trajectory(1.0)])
    (share,) = plan(batch, 1, PackingConfig(positions=4))
    assert sorted(s for members in share for s in members) == [0, 1]
    # Longer than the model's context: the engine did not stop in time. The sample is refused by name.
    group = TrajectoryGroup(Task("game:x"), (overflow,))
    assert quarantine([group], SampleLimits(VOCABULARY, context=10)) == [[InvalidSample.TOO_LONG]]
