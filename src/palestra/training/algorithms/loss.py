"""Losses over sampled tokens. Torch, pure functions.

Every tensor here is flat, with one entry per SAMPLED token of a micro-batch (T); only ``logits`` has the vocabulary beside it
(T, V). Environment tokens are not in these arrays at all, so they cannot take part in a loss, a KL or a mean.

Every loss is Σ w·ℓ over tokens. The weights w are computed once from the GLOBAL batch (``batch.token_weights``), so the sum
over micro-batches and ranks is the loss of the whole batch, however it was divided. Nothing here divides by a local count.

Three policies appear: π, which is trained; π_old, which the ratio ρ = π/π_old is measured against; and μ, which sampled.
π_old is the trainer's own policy before the update, recomputed (the default), or μ itself. When it is recomputed, the loss of
a token is multiplied by the importance weight π_old/μ: that corrects sampler and trainer arithmetic that differ, and with
stale samples it is the decoupled objective. ``truncate`` caps the weight, ``mask`` leaves out what lies outside the bounds. The
weight is that of the token, or that of its segment: the product over all its sampled tokens, or their geometric mean.

Bounds, for every kind of loss: ``clip_low`` and ``clip_high`` are distances from 1. The ratio is kept in
[1 − clip_low, 1 + clip_high], CISPO's included. Every exponent is clamped to ±20.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from palestra.errors import UsageError
from palestra.foundation.references import parse_hook
from palestra.recipes.algorithms import LOSS, LossConfig

__all__ = [
    "Objective",
    "PolicyTokens",
    "TokenStatistics",
    "ValueTokens",
    "importance_weights",
    "kl_estimate",
    "log_ratio",
    "policy_loss",
    "token_statistics",
    "undivided",
    "value_loss",
]

_EXPONENT_LIMIT = 20.0
_BLOCK = 1 << 19
"""Number of logits per block: two megabytes."""
_undivided: ContextVar[bool] = ContextVar("undivided", default=False)


class TokenStatistics(NamedTuple):
    """Log-probability and entropy at every sampled token."""

    logprobs: Tensor
    entropy: Tensor


class PolicyTokens(NamedTuple):
    """What the policy loss needs for each sampled token, apart from π itself."""

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
    """What the value loss needs for each sampled token."""

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
        return TokenStatistics(*_Chosen.apply(scaled, targets))  # type: ignore[no-untyped-call,unused-ignore]
    normalizer = torch.logsumexp(scaled, dim=-1)
    chosen = scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    entropy = normalizer - (torch.exp(scaled - normalizer.unsqueeze(-1)) * scaled).sum(-1)
    return TokenStatistics(chosen - normalizer, entropy)


@contextmanager
def undivided() -> Iterator[None]:
    """Process the logits of all rows at once, as on a GPU, although they are on a CPU: for plans of a GPU's memory."""
    token = _undivided.set(True)
    try:
        yield
    finally:
        _undivided.reset(token)


class _Chosen(torch.autograd.Function):
    """Log-probabilities of the chosen tokens, and entropies that are only looked at.

    The logits of a micro-batch are its largest tensor, and on a CPU every pass over them outside the cache counts. So they are
    processed in blocks of rows, the probabilities are kept, and the gradient is computed from them in place.
    """

    @staticmethod
    def forward(ctx: Any, scaled: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        blocks = scaled.device.type == "cpu" and not _undivided.get()
        rows = max(_BLOCK // max(scaled.shape[-1], 1), 1) if blocks else len(scaled)
        probabilities = torch.empty_like(scaled)
        normalizer, entropy = scaled.new_empty(len(scaled)), scaled.new_empty(len(scaled))
        for start in range(0, len(scaled), max(rows, 1)):
            block = slice(start, start + rows)
            torch.logsumexp(scaled[block], -1, out=normalizer[block])
            torch.sub(scaled[block], normalizer[block].unsqueeze(-1), out=probabilities[block])
            probabilities[block].exp_()
            entropy[block] = normalizer[block] - (probabilities[block] * scaled[block]).sum(-1)
        ctx.probabilities, ctx.targets = probabilities, targets
        ctx.mark_non_differentiable(entropy)
        return scaled.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normalizer, entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None]:
        # Given away: a second backward pass fails, and does not compute the gradient of a gradient.
        towards, ctx.probabilities = ctx.probabilities, None
        towards *= -gradient.unsqueeze(-1)
        return towards.scatter_add_(-1, ctx.targets.unsqueeze(-1), gradient.unsqueeze(-1)), None


def log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """log(new/old), clamped so that its exponential stays finite."""
    return torch.clamp(new - old, -_EXPONENT_LIMIT, _EXPONENT_LIMIT)


def importance_weights(old: Tensor, sampled: Tensor, segments: Tensor, config: LossConfig) -> Tensor:
    """π_old/μ of every token or of its segment, capped or zeroed outside the bounds. No gradient flows through it."""
    if config.importance == "none" or config.old == "sampled":
        return torch.ones_like(old)
    difference = log_ratio(old, sampled).detach()
    if config.importance_level != "token":
        difference = _over_segments(difference, segments, mean=config.importance_level == "segment_mean")
        difference = difference.clamp(-_EXPONENT_LIMIT, _EXPONENT_LIMIT)
    weights = torch.exp(difference)
    if config.importance == "truncate":
        return weights.clamp(max=config.importance_cap)
    return torch.where((weights >= config.importance_floor) & (weights <= config.importance_cap), weights, 0.0)


def _over_segments(values: Tensor, segments: Tensor, *, mean: bool) -> Tensor:
    """The sum or mean of ``values`` over the segment of every token."""
    if not len(values):
        return values
    empty = values.new_zeros(int(segments.max()) + 1)
    sums = empty.index_add(0, segments, values)
    if mean:
        sums = sums / empty.index_add(0, segments, torch.ones_like(values)).clamp(min=1)
    return sums[segments]


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
    importance = importance_weights(tokens.old, tokens.sampled, tokens.segments, config)
    objective = importance * _objective(new.logprobs, ratio, tokens, config)
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
        "masked_tokens": (importance == 0).float(),
    }
    metrics = {name: (tokens.shares * value.detach()).sum() for name, value in measured.items()}
    return (tokens.weights * loss).sum(), metrics


def _difference(new: Tensor, old: Tensor, segments: Tensor, config: LossConfig) -> Tensor:
    """Log ρ of every token; for GSPO its segment's mean, with the gradient of each token's own log-probability."""
    difference = log_ratio(new, old)
    if parse_hook(LOSS.key, config.kind)[0] != "gspo" or not len(difference):
        return difference
    return _over_segments(difference.detach(), segments, mean=True) + new - new.detach()


def _objective(new: Tensor, ratio: Tensor, tokens: PolicyTokens, config: LossConfig) -> Tensor:
    chosen: Objective = LOSS.load(config.kind)
    objective: Any = chosen(new, ratio, tokens, config)
    if not isinstance(objective, Tensor) or objective.shape != new.shape:
        got = f"shape {tuple(objective.shape)}" if isinstance(objective, Tensor) else type(objective).__name__
        raise UsageError(f"learner.loss.kind must return a tensor with one number per sampled token ({len(new)}), got {got}")
    return objective


def plain(new: Tensor, ratio: Tensor, tokens: PolicyTokens, config: LossConfig) -> Tensor:
    return tokens.advantages * new


def cispo(new: Tensor, ratio: Tensor, tokens: PolicyTokens, config: LossConfig) -> Tensor:
    return ratio.clamp(1 - config.clip_low, 1 + config.clip_high).detach() * tokens.advantages * new


def clip(new: Tensor, ratio: Tensor, tokens: PolicyTokens, config: LossConfig) -> Tensor:
    clipped = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    surrogate = torch.minimum(ratio * tokens.advantages, clipped * tokens.advantages)
    if config.dual_clip is None:
        return surrogate
    bounded = torch.maximum(surrogate, config.dual_clip * tokens.advantages)
    return torch.where(tokens.advantages < 0, bounded, surrogate)


Objective = Callable[[Tensor, Tensor, PolicyTokens, LossConfig], Tensor]
"""A pure function of log π (T), the ratio ρ (T), the tokens and the configuration. Returns the objective of every token (T),
which training increases. ``policy_loss`` multiplies it by the importance weight, adds entropy and KL, and sums with the global
weights."""


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
