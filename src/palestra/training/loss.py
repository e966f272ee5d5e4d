"""Losses over sampled tokens. Torch, pure functions.

Every tensor here is flat, with one entry per SAMPLED token of a micro-batch (T); only ``logits`` has the vocabulary beside it
(T, V). Environment tokens are not in these arrays at all, so they cannot take part in a loss, a KL or a mean.

Every loss is Σ w·ℓ over tokens. The weights w are worked out once from the GLOBAL batch (``batch.token_weights``), so the sum
over micro-batches and ranks is the loss of the whole batch, however it was split; nothing here divides by a local count.

Three policies appear: π, which is trained; π_old, which the ratio ρ = π/π_old is measured against; and μ, which sampled.
π_old is the trainer's own policy before the update, recomputed (the default), or μ itself. When it is recomputed, the loss of
a token is multiplied by the importance weight π_old/μ: that corrects sampler and trainer arithmetic that differ, and with
stale samples it is the decoupled objective. ``truncate`` caps the weight, ``mask`` leaves out the tokens above the cap.

Bounds, for every kind of loss: ``clip_low`` and ``clip_high`` are distances from 1. The ratio is kept in
[1 − clip_low, 1 + clip_high], CISPO's included. Every exponent is clamped to ±20.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import torch
from torch import Tensor

__all__ = [
    "LossConfig",
    "PolicyTokens",
    "TokenStatistics",
    "ValueTokens",
    "importance_weights",
    "kl_estimate",
    "log_ratio",
    "policy_loss",
    "token_statistics",
    "value_loss",
]

_EXPONENT_LIMIT = 20.0
_BLOCK = 1 << 19
"""Logits that are gone through at once: two megabytes."""
_Fraction = Annotated[float, msgspec.Meta(ge=0.0)]


class LossConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which loss, and its bounds."""

    kind: Literal["clip", "gspo", "cispo", "plain"] = "clip"
    """Clip the token's ratio (PPO, GRPO), the segment's (GSPO), weigh log π by the clipped ratio (CISPO), or take A·log π as it
    is: the plain policy gradient, and with A = 1 supervised learning."""
    clip_low: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.2
    """How far below 1 the ratio may fall."""
    clip_high: _Fraction = 0.2
    """How far above 1 the ratio may rise. DAPO takes 0.28."""
    dual_clip: Annotated[float, msgspec.Meta(gt=1.0)] | None = None
    """Bound −A·dual_clip on the loss of a token with a negative advantage. Off by default."""
    old: Literal["recomputed", "sampled"] = "recomputed"
    """What the ratio is measured against."""
    importance: Literal["truncate", "mask", "none"] = "truncate"
    """What is done with π_old/μ."""
    importance_cap: Annotated[float, msgspec.Meta(gt=0.0)] = 2.0
    """The largest importance weight."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of KL(π‖reference). In a loss k1 has a gradient that is zero on average: use k2 or k3 there, k1 in a reward."""
    kl_coefficient: _Fraction = 0.0
    """Weight of the KL in the loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: _Fraction = 0.5
    """Weight of the critic's loss."""
    value_clip: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """How far a value may move from the old one before its gradient stops."""
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """Every token counts the same; every episode does; or Σ / (episodes · constant), as Dr.GRPO asks."""
    constant: Annotated[int, msgspec.Meta(ge=1)] = 1024
    """The divisor of ``constant``: the longest response, in tokens."""


class TokenStatistics(NamedTuple):
    """What a model says of the tokens that were sampled."""

    logprobs: Tensor
    entropy: Tensor


class PolicyTokens(NamedTuple):
    """What the policy loss knows of each sampled token, apart from π itself."""

    old: Tensor
    """log π_old."""
    sampled: Tensor
    """log μ, as recorded at sampling time."""
    advantages: Tensor
    weights: Tensor
    """The token's share of the global loss."""
    shares: Tensor
    """One over the number of tokens of the global batch, for means that are reported."""
    segments: Tensor
    """Index of the token's segment in the micro-batch."""
    reference: Tensor | None = None
    """log of the reference policy, if there is a KL in the loss."""


class ValueTokens(NamedTuple):
    """What the value loss knows of each sampled token."""

    old_values: Tensor
    targets: Tensor
    """NaN where the critic has no target."""
    weights: Tensor
    """One over the number of targets of the global batch."""


def token_statistics(
    logits: Tensor, targets: Tensor, temperature: float, *, differentiable_entropy: bool = False
) -> TokenStatistics:
    """Log-probabilities and entropies at the temperature that sampling used."""
    scaled = logits.float() if temperature == 1.0 else logits.float() / temperature
    if not differentiable_entropy:
        return TokenStatistics(*_Chosen.apply(scaled, targets))
    normaliser = torch.logsumexp(scaled, dim=-1)
    chosen = scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    entropy = normaliser - (torch.exp(scaled - normaliser.unsqueeze(-1)) * scaled).sum(-1)
    return TokenStatistics(chosen - normaliser, entropy)


class _Chosen(torch.autograd.Function):  # type: ignore[misc]
    """Log-probabilities of the chosen tokens, and entropies that are only looked at.

    The logits of a micro-batch are its largest tensor, and on a CPU every pass over them outside the cache counts. So they are
    gone through in blocks of rows, the probabilities are kept, and the gradient is made of them, in their place.
    """

    @staticmethod
    def forward(ctx: Any, scaled: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        rows = max(_BLOCK // max(scaled.shape[-1], 1), 1) if scaled.device.type == "cpu" else len(scaled)
        probabilities = torch.empty_like(scaled)
        normaliser, entropy = scaled.new_empty(len(scaled)), scaled.new_empty(len(scaled))
        for start in range(0, len(scaled), max(rows, 1)):
            block = slice(start, start + rows)
            torch.logsumexp(scaled[block], -1, out=normaliser[block])
            torch.sub(scaled[block], normaliser[block].unsqueeze(-1), out=probabilities[block])
            probabilities[block].exp_()
            entropy[block] = normaliser[block] - (probabilities[block] * scaled[block]).sum(-1)
        ctx.probabilities, ctx.targets = probabilities, targets
        ctx.mark_non_differentiable(entropy)
        return scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser, entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        # Given away: whoever runs backward a second time finds nothing, rather than a gradient of a gradient.
        towards, ctx.probabilities = ctx.probabilities, None
        towards *= -gradient.unsqueeze(-1)
        return towards.scatter_add_(-1, ctx.targets.unsqueeze(-1), gradient.unsqueeze(-1)), None


def log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """log(new/old), clamped so that its exponential stays finite."""
    return torch.clamp(new - old, -_EXPONENT_LIMIT, _EXPONENT_LIMIT)


def importance_weights(old: Tensor, sampled: Tensor, config: LossConfig) -> Tensor:
    """π_old/μ of every token, capped or zeroed above the cap. No gradient flows through it."""
    if config.importance == "none" or config.old == "sampled":
        return torch.ones_like(old)
    weights = torch.exp(log_ratio(old, sampled)).detach()
    if config.importance == "truncate":
        return weights.clamp(max=config.importance_cap)
    return torch.where(weights <= config.importance_cap, weights, 0.0)


def kl_estimate(new: Tensor, reference: Tensor, kind: Literal["k1", "k2", "k3"]) -> Tensor:
    """KL(new‖reference) from samples of new: k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d, where d = log new − log reference."""
    difference = log_ratio(new, reference)
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    return torch.expm1(-difference) + difference


def policy_loss(new: TokenStatistics, tokens: PolicyTokens, config: LossConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """The micro-batch's part of the global policy loss, and parts of global means. Both add up over micro-batches."""
    old = tokens.sampled if config.old == "sampled" else tokens.old
    difference = _difference(new.logprobs, old, tokens.segments, config)
    ratio = torch.exp(difference)
    importance = importance_weights(tokens.old, tokens.sampled, config)
    objective = importance * _surrogate(new.logprobs, ratio, tokens.advantages, config)
    # The entropy is left out where it is not asked for: its gradient would be 0 · something, which is NaN if that is infinite.
    loss = -objective - (config.entropy_coefficient * new.entropy if config.entropy_coefficient else 0.0)
    kl = torch.zeros_like(ratio)
    if tokens.reference is not None:
        kl = kl_estimate(new.logprobs, tokens.reference, config.kl)
        loss = loss + config.kl_coefficient * kl
    elif config.kl_coefficient:
        raise ValueError("a KL in the loss needs the reference's log-probs: measure the batch with a reference first")
    outside = (ratio > 1 + config.clip_high) | (ratio < 1 - config.clip_low)
    measured = {
        "policy_loss": -objective,
        "entropy": new.entropy,
        "kl_reference": kl,
        "kl_old": kl_estimate(old, new.logprobs, "k3"),
        "clipped": outside.float(),
        "importance": importance,
    }
    metrics = {name: (tokens.shares * value.detach()).sum() for name, value in measured.items()}
    return (tokens.weights * loss).sum(), metrics


def _difference(new: Tensor, old: Tensor, segments: Tensor, config: LossConfig) -> Tensor:
    """Log ρ of every token; for GSPO its segment's mean, with the gradient of each token's own log-probability."""
    difference = log_ratio(new, old)
    if config.kind != "gspo" or not len(difference):
        return difference
    still = difference.detach()
    empty = still.new_zeros(int(segments.max()) + 1)
    sums = empty.index_add(0, segments, still)
    counts = empty.index_add(0, segments, torch.ones_like(still))
    return (sums / counts.clamp(min=1))[segments] + new - new.detach()


def _surrogate(new: Tensor, ratio: Tensor, advantages: Tensor, config: LossConfig) -> Tensor:
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    if config.kind == "plain":
        return advantages * new
    if config.kind == "cispo":
        return clipped.detach() * advantages * new
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    if config.dual_clip is None:
        return surrogate
    bounded = torch.maximum(surrogate, config.dual_clip * advantages)
    return torch.where(advantages < 0, bounded, surrogate)


def value_loss(values: Tensor, tokens: ValueTokens, config: LossConfig) -> Tensor:
    """The micro-batch's part of ½·mean (V − target)² over the tokens that have a target, clipped around the old value."""
    wanted = ~torch.isnan(tokens.targets)
    targets = torch.where(wanted, tokens.targets, 0.0)
    error = (values - targets).square()
    if config.value_clip is not None:
        moved = (values - tokens.old_values).clamp(-config.value_clip, config.value_clip)
        error = torch.maximum(error, (tokens.old_values + moved - targets).square())
    # Multiplied, not indexed: a micro-batch without a target still has a graph to run backward through.
    return 0.5 * (torch.where(wanted, error, 0.0) * tokens.weights).sum()
