"""Losses and their gradients against numbers worked out by hand; the arithmetic stands beside them."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from palestra.errors import UsageError
from palestra.recipes.algorithms import LossConfig
from palestra.training.algorithms import loss as loss_module
from palestra.training.algorithms.loss import (
    PolicyTokens,
    TokenStatistics,
    ValueTokens,
    importance_weights,
    kl_estimate,
    policy_loss,
    token_statistics,
    undivided,
    value_loss,
)

pytestmark = pytest.mark.torch


def logs(*probabilities: float, grad: bool = False) -> Tensor:
    return torch.tensor([math.log(p) for p in probabilities], dtype=torch.float64, requires_grad=grad)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tokens(old: Tensor, advantages: Tensor, **changes: Any) -> PolicyTokens:
    count = len(old)
    fields: dict[str, Any] = {
        "sampled": old,
        "weights": torch.full((count,), 1 / count, dtype=torch.float64),
        "shares": torch.full((count,), 1 / count, dtype=torch.float64),
        "segments": torch.zeros(count, dtype=torch.int64),
    }
    return PolicyTokens(old=old, advantages=advantages, **{**fields, **changes})


def loss_of(new: Tensor, given: PolicyTokens, config: LossConfig) -> tuple[float, list[float], dict[str, Tensor]]:
    loss, metrics = policy_loss(TokenStatistics(new, torch.zeros_like(new)), given, config)
    (gradient,) = torch.autograd.grad(loss, new)
    return float(loss.detach()), gradient.tolist(), metrics


def close(got: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=1e-6)


def test_token_statistics_at_a_temperature() -> None:
    # logits (0, ln 9) at temperature 2 → (0, ln 3): probabilities 1/4 and 3/4
    # log p = ln 0.75 = −0.287682;  H = 0.25·ln 4 + 0.75·ln(4/3) = 0.562335
    got = token_statistics(torch.tensor([[0.0, math.log(9.0)]]), torch.tensor([1]), 2.0)
    close(got.logprobs, [-0.2876820724])
    close(got.entropy, [0.5623351446])


@pytest.mark.parametrize(("rows", "words"), [(1, 2), (3, 7), (5, 300_000)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_statistics_with_and_without_a_differentiable_entropy_are_the_same(rows: int, words: int, temperature: float) -> None:
    torch.manual_seed(0)
    logits, targets, shares = torch.randn(rows, words) * 3, torch.randint(words, (rows,)), torch.randn(rows)
    found = []
    for differentiable in (False, True):
        leaf = logits.clone().requires_grad_()
        got = token_statistics(leaf, targets, temperature, differentiable_entropy=differentiable)
        (got.logprobs * shares).sum().backward()
        found.append((got.logprobs.detach(), got.entropy.detach(), leaf.grad))
        assert got.entropy.requires_grad == differentiable
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_statistics_cannot_be_run_backward_twice() -> None:
    got = token_statistics(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1]), 1.0).logprobs.sum()
    got.backward(retain_graph=True)
    with pytest.raises(TypeError):
        got.backward()


WIDE: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.28}
OBJECTIVES: dict[str, tuple[LossConfig, list[float], list[float], list[float], float, list[float]]] = {
    # ρ = 1.5, 0.5, 1.5, 0.5; bounds 0.8 and 1.28
    # objective: min(1.5, 1.28) = 1.28 (clipped); min(0.5, 0.8) = 0.5; min(−1.5, −1.28) = −1.5; min(−0.5, −0.8) = −0.8 (clipped)
    # loss = −(1.28 + 0.5 − 1.5 − 0.8)/4 = 0.13;  d/dlogπ = −ρ·A/4 where not clipped: −0.125 and +0.375
    "the smaller of both terms": (
        LossConfig(importance="none", **WIDE), [0.3, 0.1, 0.3, 0.1], [0.2] * 4, [1, 1, -1, -1], 0.13, [0.0, -0.125, 0.375, 0.0],
    ),
    # ρ = 5, A = −1: min(−5, −1.2) = −5, bounded by −3 → loss 3, no gradient;  A = +1 is untouched: min(5, 1.2) = 1.2
    "dual clip": (LossConfig(dual_clip=3.0, importance="none"), [0.5, 0.5], [0.1, 0.1], [-1, 1], 0.9, [0.0, 0.0]),
    # ρ = 1.21 and 1 → geometric mean 1.1 = s; both tokens get −s·A·w = −1.1/2, whatever their own ratio
    "gspo": (LossConfig("gspo", importance="none"), [0.242, 0.2], [0.2, 0.2], [1, 1], -1.1, [-0.55, -0.55]),
    # ρ = 2 → 1.28 and 0.5 → 0.8: loss = −(1.28·ln 0.4 − 0.8·ln 0.1)/2;  gradient = −1.28/2 and +0.8/2 (never cut off)
    "cispo": (
        LossConfig("cispo", importance="none", **WIDE), [0.4, 0.1], [0.2, 0.2], [1, -1],
        -(1.28 * math.log(0.4) - 0.8 * math.log(0.1)) / 2, [-0.64, 0.4],
    ),
    # loss = −(2·ln 0.5 + 1·ln 0.25)/2;  gradient = −A/2: the policy gradient, and with ones supervised learning
    "plain": (
        LossConfig("plain", importance="none"), [0.5, 0.25], [0.1, 0.1], [2, 1],
        -(2 * math.log(0.5) + math.log(0.25)) / 2, [-1.0, -0.5],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("config", "new", "old", "advantages", "loss", "gradient"), OBJECTIVES.values(), ids=list(OBJECTIVES))
def test_objectives_and_their_gradients(
    config: LossConfig, new: list[float], old: list[float], advantages: list[float], loss: float, gradient: list[float]
) -> None:
    found = loss_of(logs(*new, grad=True), tokens(logs(*old), numbers(*advantages)), config)
    close(found[0], loss)
    close(found[1], gradient)
    ratios = np.array(new) / np.array(old)
    if config.kind != "gspo":
        close(found[2]["clipped"], np.mean((ratios > 1 + config.clip_high) | (ratios < 1 - config.clip_low)))
    close(found[2]["policy_loss"], loss)


def test_gspo_clips_the_segments_ratio() -> None:
    # Segment 0: ρ = 4 and 1 → geometric mean 2, clipped to 1.2 for A = 1: loss part −1.2 each, no gradient.
    # Segment 1: ρ = 1.1 → inside: −1.1·2, gradient −1.1·2·w.  w = 1/3.
    given = tokens(logs(0.1, 0.1, 0.2), numbers(1, 1, 2), segments=torch.tensor([0, 0, 1]))
    loss, gradient, _ = loss_of(logs(0.4, 0.1, 0.22, grad=True), given, LossConfig("gspo", importance="none"))
    close(loss, -(1.2 + 1.2 + 2.2) / 3)
    close(gradient, [0.0, 0.0, -2.2 / 3])


@pytest.mark.parametrize(
    ("kind", "expected"), [("truncate", [2.0, 0.5, 1.5]), ("mask", [0.0, 0.5, 1.5]), ("none", [1.0, 1.0, 1.0])]
)
def test_importance_weights(kind: Literal["truncate", "mask", "none"], expected: list[float]) -> None:
    # π_old/μ = 3, 0.5, 1.5 with a cap of 2
    segments = torch.tensor([0, 0, 1])
    close(importance_weights(logs(0.6, 0.1, 0.3), logs(0.2, 0.2, 0.2), segments, LossConfig(importance=kind)), expected)


@pytest.mark.parametrize(
    ("level", "floor", "cap", "expected"),
    [
        # π_old/μ = 3, 0.5, 1.5; the first two are one segment: product 1.5, geometric mean √1.5
        ("token", 0.6, 5.0, [3.0, 0.0, 1.5]),
        ("segment", 0.0, 2.0, [1.5, 1.5, 1.5]),
        ("segment_mean", 0.0, 1.3, [1.5**0.5, 1.5**0.5, 0.0]),
        ("segment", 0.0, 1.4, [0.0, 0.0, 0.0]),
        ("segment_mean", 1.3, 2.0, [0.0, 0.0, 1.5]),
    ],
)
def test_masks_of_both_sides_and_of_segments(level: Any, floor: float, cap: float, expected: list[float]) -> None:
    config = LossConfig(importance="mask", importance_level=level, importance_floor=floor, importance_cap=cap)
    given = logs(0.6, 0.1, 0.3), logs(0.2, 0.2, 0.2), torch.tensor([0, 0, 1])
    close(importance_weights(*given, config), expected)
    assert len(importance_weights(logs(), logs(), torch.tensor([], dtype=torch.int64), config)) == 0


@pytest.mark.parametrize(("floor", "cap"), [(0.5, 1.0), (1.0, 1.5)])
def test_a_weight_at_a_bound_is_kept(floor: float, cap: float) -> None:
    config = LossConfig(importance="mask", importance_floor=floor, importance_cap=cap)
    close(importance_weights(logs(0.2), logs(0.2), torch.tensor([0]), config), [1.0])


def summed(new: Any, ratio: Any, tokens: Any, config: LossConfig) -> Any:
    return (new * tokens.advantages).sum()


def nothing(*_: object) -> None: ...


@pytest.mark.parametrize(("name", "got"), [("summed", r"shape \(\)"), ("nothing", "NoneType")])
def test_an_objective_of_ones_own_has_one_number_per_token(name: str, got: str) -> None:
    config = LossConfig(f"{__name__}:{name}")
    with pytest.raises(UsageError, match=rf"one number per sampled token \(2\), got {got}"):
        loss_of(logs(0.4, 0.1), tokens(logs(0.2, 0.2), numbers(1, -1)), config)


def test_logits_may_be_processed_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.training.algorithms.loss._BLOCK", 5)
    logits, targets = torch.randn(7, 3), torch.randint(3, (7,))
    in_blocks = token_statistics(logits, targets, 1.0)
    with undivided():
        assert loss_module._undivided.get()
        at_once = token_statistics(logits, targets, 1.0)
    assert not loss_module._undivided.get()
    for one, other in zip(in_blocks, at_once, strict=True):
        torch.testing.assert_close(one, other)


def test_an_objective_that_is_not_there_and_a_floor_without_a_mask_are_refused() -> None:
    with pytest.raises(UsageError, match='"nobody" is unknown'):
        LossConfig("nobody")
    with pytest.raises(ValueError, match='importance_floor is for importance = "mask"'):
        LossConfig(importance_floor=0.5)
    with pytest.raises(ValueError, match="above importance_cap"):
        LossConfig(importance="mask", importance_floor=3.0)


def test_the_decoupled_objective_clips_around_old_and_weighs_by_old_over_sampled() -> None:
    # μ = 0.1, π_old = 0.15, π = 0.21, A = 1: ρ = 1.4 → 1.2, weight 1.5 → loss −1.8.  Against μ alone: ρ = 2.1 → 1.2 → −1.2.
    new = logs(0.21, grad=True)
    given = tokens(logs(0.15), numbers(1), sampled=logs(0.1))
    close(loss_of(new, given, LossConfig())[0], -1.8)
    close(loss_of(new, given, LossConfig(old="sampled"))[0], -1.2)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("k1", [math.log(2), -math.log(2)]), ("k2", [0.240226507] * 2), ("k3", [0.193147181, 0.306852819])],
)
def test_kl_estimators(kind: Any, expected: list[float]) -> None:
    # d = ln 2 and −ln 2: k2 = d²/2; k3 = 1/2 − 1 + ln 2 and 2 − 1 − ln 2
    close(kl_estimate(logs(0.4, 0.2), logs(0.2, 0.4), kind), expected)


def test_kl_and_entropy_enter_the_loss_with_their_coefficients() -> None:
    # A = 0: the loss is 0.1·k2 − 0.01·H = 0.1·0.240226507 − 0.01·3;  d k2/d logπ = d = ln 2
    new = logs(0.4, grad=True)
    entropy = torch.tensor([3.0], dtype=torch.float64)
    config = LossConfig(kl="k2", kl_coefficient=0.1, entropy_coefficient=0.01, importance="none")
    given = tokens(logs(0.4), numbers(0), reference=logs(0.2))
    loss, metrics = policy_loss(TokenStatistics(new, entropy), given, config)
    close(loss.detach(), 0.0240226507 - 0.03)
    close(torch.autograd.grad(loss, new)[0], [0.0693147181])
    close(metrics["entropy"], 3.0)
    with pytest.raises(ValueError, match="reference"):
        policy_loss(TokenStatistics(new, entropy), tokens(logs(0.4), numbers(0)), config)


def test_value_loss_counts_only_the_tokens_with_a_target() -> None:
    # errors 1 − 3 = −2 and 2 − 1 = 1, weights 1/2: ½·(4 + 1)/2 = 1.25;  gradient ½·2·(V − target)/2 = −1, 0, 0.5
    values = torch.tensor([1.0, 50.0, 2.0], dtype=torch.float64, requires_grad=True)
    given = ValueTokens(numbers(1, 50, 2), numbers(3, math.nan, 1), numbers(0.5, 0.5, 0.5))
    loss = value_loss(values, given, LossConfig())
    close(loss.detach(), 1.25)
    close(torch.autograd.grad(loss, values)[0], [-1.0, 0.0, 0.5])


@given(
    st.lists(st.tuples(*[st.floats(-60, 0)] * 3, st.floats(-10, 10)), min_size=1, max_size=12),
    st.sampled_from(["clip", "gspo", "cispo"]),
)
def test_no_input_within_reason_makes_a_gradient_that_is_not_finite(
    rows: list[tuple[float, float, float, float]], kind: Literal["clip", "gspo", "cispo"]
) -> None:
    new, old, sampled, advantages = (torch.tensor(column, dtype=torch.float32) for column in zip(*rows, strict=True))
    new.requires_grad_()
    given = tokens(old, advantages, sampled=sampled, reference=sampled, weights=torch.ones(len(rows)))
    loss, gradient, metrics = loss_of(new, given, LossConfig(kind, kl_coefficient=0.1))
    assert math.isfinite(loss)
    assert all(map(math.isfinite, gradient))
    assert all(math.isfinite(float(value)) for value in metrics.values())


@given(st.integers(1, 7), st.sampled_from(["clip", "cispo"]))
def test_parts_add_up_to_the_whole(cut: int, kind: Literal["clip", "cispo"]) -> None:
    generator = torch.Generator().manual_seed(cut)
    new, old, sampled, advantages = torch.randn(4, 8, generator=generator, dtype=torch.float64)
    whole = tokens(old, advantages, sampled=sampled, reference=sampled)
    config = LossConfig(kind, kl_coefficient=0.2)

    def part(start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        fields = {name: value[start:stop] for name, value in whole._asdict().items()}
        return policy_loss(TokenStatistics(new[start:stop], new[start:stop]), PolicyTokens(**fields), config)

    (left, left_metrics), (right, right_metrics) = part(0, cut), part(cut, 8)
    both, metrics = part(0, 8)
    close(left + right, both)
    for name, value in metrics.items():
        close(left_metrics[name] + right_metrics[name], value)


def test_a_value_that_moves_further_than_the_clip_pays_for_the_worse_of_the_two_errors() -> None:
    tokens = ValueTokens(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.0, 3.0, float("nan")]), torch.full((3,), 0.5))
    values = torch.tensor([0.5, 1.1, 9.0])
    # The first may move to 0.8 only, so its error is 0.8 and not 0.5; the second has moved by less than the clip.
    clipped = value_loss(values, tokens, LossConfig(value_clip=0.2))
    assert float(clipped) == pytest.approx(0.5 * 0.5 * (0.8**2 + 1.9**2))
    assert float(value_loss(values, tokens, LossConfig())) == pytest.approx(0.5 * 0.5 * (0.5**2 + 1.9**2))
