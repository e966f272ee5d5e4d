"""Our advantages and losses against verl's ``core_algos``, where verl is installed. Intended differences are named and undone.

The differences, all of them on purpose: our standard deviations are biased, verl's are not (a factor); a group of one is worth
0 here and its raw reward there; γ is per turn here and per token there (compared at γ = 1); GAE bootstraps a cut episode here
and never there (compared on ended episodes); verl caps the k3 estimate itself at 10, we only clamp its exponent.
"""

import math
from typing import Any

import numpy as np
import pytest

core_algos: Any = pytest.importorskip("verl.trainer.ppo.core_algos", exc_type=ImportError)

import torch  # noqa: E402
from tests.training.algorithms.test_advantage import random_episode  # noqa: E402
from verl.workers.config import ActorConfig  # noqa: E402

from palestra.encoding import ints  # noqa: E402
from palestra.training.algorithms.advantage import AdvantageConfig, advantages  # noqa: E402
from palestra.training.algorithms.groups import Array, GroupMember  # noqa: E402
from palestra.training.algorithms.loss import (  # noqa: E402
    LossConfig,
    PolicyTokens,
    TokenStatistics,
    ValueTokens,
    kl_estimate,
    policy_loss,
    value_loss,
)
from palestra.training.learner.batch import Batch, token_weights  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

GROUPS, MEMBERS, WIDTH = 3, 4, 40


@pytest.fixture
def groups() -> list[list[GroupMember]]:
    rng = np.random.default_rng(7)
    made = [[random_episode(rng) for _ in range(MEMBERS)] for _ in range(GROUPS)]
    return [[GroupMember(e.rewards, np.maximum(e.lengths, 1), True, e.anchors) for e in group] for group in made]


def table(episodes: list[GroupMember]) -> tuple[Any, Any]:
    """One row an episode, two environment tokens after each turn, the reward on the turn's last action token."""
    rewards, mask = torch.zeros(len(episodes), WIDTH, dtype=torch.float64), torch.zeros(len(episodes), WIDTH)
    for row, episode in enumerate(episodes):
        place = 0
        for reward, length in zip(episode.rewards, episode.lengths, strict=True):
            mask[row, place : place + length] = 1
            rewards[row, place + length - 1] = reward
            place += int(length) + 2
    return rewards, mask.double()


def ours(groups: list[list[GroupMember]], method: str, **changes: Any) -> Array:
    credits = advantages(groups, AdvantageConfig(method, **changes))
    return np.concatenate([credit.per_token() for group in credits for credit in group if credit is not None])


def theirs(values: Any, mask: Any) -> Array:
    flat: Array = values[mask.bool()].numpy()
    return flat


INDEX = np.repeat(np.arange(GROUPS), MEMBERS)
BIAS_OF_A_GROUP = math.sqrt(MEMBERS / (MEMBERS - 1))


def test_grpo(groups: list[list[GroupMember]]) -> None:
    rewards, mask = table([e for group in groups for e in group])
    got, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, INDEX, epsilon=0.0)
    np.testing.assert_allclose(ours(groups, "grpo", epsilon=0.0), theirs(got, mask) * BIAS_OF_A_GROUP, atol=1e-6)
    plain, _ = core_algos.compute_grpo_outcome_advantage(rewards, mask, INDEX, norm_adv_by_std_in_grpo=False)
    np.testing.assert_allclose(ours(groups, "dr_grpo"), theirs(plain, mask), atol=1e-6)


def test_rloo(groups: list[list[GroupMember]]) -> None:
    rewards, mask = table([e for group in groups for e in group])
    got, _ = core_algos.compute_rloo_outcome_advantage(rewards, mask, INDEX)
    np.testing.assert_allclose(ours(groups, "rloo"), theirs(got, mask), atol=1e-6)


def test_reinforce_plus_plus(groups: list[list[GroupMember]]) -> None:
    rewards, mask = table([e for group in groups for e in group])
    tokens = float(mask.sum())
    bias = math.sqrt(tokens / (tokens - 1))
    config = type("Config", (), {"gamma": 1.0})()
    got, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(rewards, mask, config=config)
    np.testing.assert_allclose(ours(groups, "reinforce_pp"), theirs(got, mask) * bias, atol=1e-6)
    based, _ = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage(rewards, mask, INDEX)
    np.testing.assert_allclose(ours(groups, "reinforce_pp_group"), theirs(based, mask) * bias, atol=1e-6)


def test_generalized_advantage_estimation(groups: list[list[GroupMember]]) -> None:
    rng = np.random.default_rng(0)
    episodes = [e for group in groups for e in group]
    rewards, mask = table(episodes)
    values = torch.from_numpy(rng.normal(size=tuple(mask.shape)))
    flat, start, with_values = values[mask.bool()].numpy(), 0, []
    for episode in episodes:
        part = flat[start : start + episode.tokens]
        with_values.append(GroupMember(episode.rewards, episode.lengths, True, values=part, final_value=9.0))
        start += episode.tokens
    got, returns = core_algos.compute_gae_advantage_return(rewards, values, mask, 1.0, 0.9)
    bias = math.sqrt(start / (start - 1))
    np.testing.assert_allclose(ours([with_values], "ppo_token", gae_lambda=0.9), theirs(got, mask) * bias, atol=1e-6)
    raw = advantages([with_values], AdvantageConfig("ppo_token", gae_lambda=0.9, whiten=False))[0]
    targets = np.concatenate([credit.targets for credit in raw if credit is not None and credit.targets is not None])
    np.testing.assert_allclose(targets, theirs(returns, mask), atol=1e-6)


def actor(**changes: Any) -> Any:
    settings = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1, "use_dynamic_bsz": True}
    return ActorConfig(**{**settings, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, **changes})


AGGREGATIONS = {"token_mean": "token-mean", "sequence_mean": "seq-mean-token-mean", "constant": "seq-mean-token-sum-norm"}


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo"])
def test_policy_losses_and_their_gradients(kind: Any, aggregation: Any) -> None:
    generator = torch.Generator().manual_seed(3)
    mask = (torch.rand(6, WIDTH, generator=generator) < 0.5).double()
    old = -torch.rand(6, WIDTH, generator=generator, dtype=torch.float64) * 3
    new = (old + 0.5 * torch.randn(6, WIDTH, generator=generator, dtype=torch.float64)).requires_grad_()
    advantage = torch.randn(6, WIDTH, generator=generator, dtype=torch.float64)
    weights = torch.rand(6, WIDTH, generator=generator, dtype=torch.float64)
    name = {"clip": "vanilla", "gspo": "gspo", "cispo": "cispo"}[kind]
    loss, _ = getattr(core_algos, f"compute_policy_loss_{name}")(
        old, new, advantage, mask, AGGREGATIONS[aggregation], actor(), rollout_is_weights=weights
    )
    (gradient,) = torch.autograd.grad(loss, new)

    rows, columns = np.nonzero(mask.numpy())
    batch = Batch(
        tuple(ints([0] * (WIDTH + 1)) for _ in range(6)), np.arange(6), 6, rows, columns + 1, 0 * rows, np.zeros(len(rows))
    )
    chosen = mask.bool()
    flat = new.detach()[chosen].requires_grad_()
    tokens = PolicyTokens(
        old=old[chosen],
        sampled=old[chosen] - torch.log(weights[chosen]),  # so that π_old/μ is verl's correction weight
        advantages=advantage[chosen],
        weights=torch.from_numpy(token_weights(batch, aggregation, WIDTH)),
        shares=torch.ones(len(rows), dtype=torch.float64),
        segments=torch.from_numpy(rows),
    )
    config = LossConfig(kind, clip_low=0.2, clip_high=0.28, dual_clip=3.0 if kind == "clip" else None)
    mine, _ = policy_loss(TokenStatistics(flat, flat.detach()), tokens, config)
    (my_gradient,) = torch.autograd.grad(mine, flat)
    assert float(mine.detach()) == pytest.approx(float(loss.detach()), abs=1e-6)
    np.testing.assert_allclose(my_gradient.numpy(), gradient[chosen].numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl(kind: Any) -> None:
    new, reference = torch.randn(2, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = core_algos.kl_penalty_forward(new, reference, kind)
    np.testing.assert_allclose(kl_estimate(new, reference, kind).clamp(max=10.0), expected, atol=1e-6)


def test_value_loss() -> None:
    values, old, targets = torch.randn(3, 1, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss, _ = core_algos.compute_value_loss(values, targets, old, torch.ones(1, 50), 0.3)
    tokens = ValueTokens(old[0], targets[0], torch.full((50,), 1 / 50, dtype=torch.float64))
    assert float(value_loss(values[0], tokens, LossConfig(value_clip=0.3))) == pytest.approx(float(loss), abs=1e-6)
