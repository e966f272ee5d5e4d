"""From logits to a token and its log-prob.

One uniform number decides a token (inverse of the cumulative distribution). So a request's seed gives the same tokens whatever
else is in the batch, at the cost of one random number per token instead of one per vocabulary entry. The log-prob is that
of the sampled distribution, temperature and cuts included, in float32.

Shapes: B requests, V vocabulary entries.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from palestra.core import Sampling

__all__ = ["DrawnToken", "draw"]


class DrawnToken(NamedTuple):
    """One token per request."""

    ids: list[int]
    logprobs: list[float]


def draw(logits_BV: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> DrawnToken:
    """Draw a token for each request; ``uniforms`` are in [0, 1)."""
    greedy_B = torch.tensor([sampling.temperature == 0 for sampling in samplings], device=logits_BV.device)
    heat_B = torch.tensor([sampling.temperature or 1.0 for sampling in samplings], device=logits_BV.device)
    logits_BV = logits_BV.float()
    if bool((heat_B != 1.0).any()):
        logits_BV = logits_BV / heat_B[:, None]
    if any(sampling.top_k or sampling.top_p < 1 for sampling in samplings):
        logits_BV = torch.stack([_cut(line, sampling) for line, sampling in zip(logits_BV, samplings, strict=True)])
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    if bool(greedy_B.all()):
        ids_B = logprobs_BV.argmax(dim=-1)
    else:
        ids_B = torch.where(greedy_B, logprobs_BV.argmax(dim=-1), _inverse(logprobs_BV, uniforms))
    chosen_B = logprobs_BV.gather(1, ids_B[:, None])[:, 0]
    return DrawnToken(ids_B.tolist(), chosen_B.tolist())


def _inverse(logprobs_BV: torch.Tensor, uniforms: Sequence[float]) -> torch.Tensor:
    # Summed in float64: over a large vocabulary float32 would lose rare tokens.
    cumulative_BV = logprobs_BV.exp().cumsum(dim=-1, dtype=torch.float64)
    point_B1 = torch.as_tensor(np.asarray(uniforms), device=logprobs_BV.device)[:, None] * cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, point_B1, right=True)[:, 0].clamp(max=logprobs_BV.shape[-1] - 1)


def _cut(logits_V: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return ``logits_V`` without the tokens that ``top_k`` and ``top_p`` exclude."""
    ordered_V, index_V = logits_V.sort(descending=True)
    keep_V = torch.ones_like(ordered_V, dtype=torch.bool)
    if sampling.top_k:
        keep_V[sampling.top_k :] = False
    if sampling.top_p < 1:
        probability_V = torch.softmax(ordered_V.masked_fill(~keep_V, -torch.inf), dim=-1)
        # A token stays if those before it do not add up to top_p yet, so the first one always stays.
        keep_V &= probability_V.cumsum(dim=-1) - probability_V < sampling.top_p
    return torch.full_like(logits_V, -torch.inf).scatter(0, index_V[keep_V], ordered_V[keep_V])
