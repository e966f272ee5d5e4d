"""Refuse a model that the learner would not compute as the model itself does, before the first step.

Some families transform their logits after the head (soft caps, scales). Some mix all positions of a row (convolutions, state
spaces), so packed segments see each other. Some cannot continue a prefix that was computed apart. Each check runs a few tokens
through the network and names the family and the setting to change.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palestra.errors import Unsupported, UsageError
from palestra.training.learner.attention import SEGMENTS, unknown_windows
from palestra.training.learner.batch import WORTH_SHARING
from palestra.training.learner.context import RankPart
from palestra.training.learner.model import ActorCritic, Inputs

__all__ = ["check_context", "check_head", "check_packing", "check_sharing"]

_TOLERANCE = {"float32": 1e-2, "bfloat16": 1e-1}
"""Of the hidden states' size. Rounding in float32 stays below 1e-4. What leaks from one segment into another is larger."""


def check_head(network: ActorCritic) -> None:
    """Raise unless decoder and head give the logits that the model's own forward pass gives."""
    model = network.language_model
    ids = _tokens(network, 8)

    def by_parts() -> Tensor:
        states = getattr(model.get_decoder()(input_ids=ids, use_cache=False), "last_hidden_state", None)
        if states is None:
            raise Unsupported(f"{type(model).__name__} does not give hidden states apart from its head: it is not supported")
        logits: Tensor = model.get_output_embeddings()(states)
        return logits

    with _evaluating(network):
        logits = network.run(lambda: model(input_ids=ids, use_cache=False).logits)
        parts = network.run(by_parts)
    if not torch.allclose(logits.float(), parts.float(), rtol=1e-3, atol=1e-3):
        raise Unsupported(
            f"{type(model).__name__} transforms its logits after the head: they differ by up to "
            f"{(logits - parts).abs().max():.3g}. Training would use other probabilities than sampling, so it is not supported"
        )


def check_packing(network: ActorCritic) -> None:
    """Raise unless two segments that share a row are computed as if each were alone.

    Layers that mix all positions of a row let the second segment see the first, and the policy that is trained is then not the
    one that was sampled. A window that ``segments`` does not know shows only in segments that are longer than the window, so it
    is looked for by name.
    """
    model, ids = network.language_model, _tokens(network, 32)
    lengths = 12, 20
    with _evaluating(network):
        with unknown_windows() as unknown:
            packed = network.run(lambda: network.hidden(_row(ids, lengths))[1])
        parts = [_row(part, part.shape[1:]) for part in ids.split(lengths, dim=1)]
        alone = torch.cat(network.run(lambda: [network.hidden(part)[1] for part in parts]), dim=1)
    if unknown:
        raise Unsupported(
            f"{type(model).__name__} limits attention to {min(unknown)} positions in its mask alone, and packed segments have "
            'no mask. Use learner.packing.layout = "padded" or model.attention = "sdpa"'
        )
    error = _difference(packed, alone)
    if not error <= _TOLERANCE[network.config.compute]:  # also if it is NaN
        raise Unsupported(
            f"{type(model).__name__} lets packed segments see each other: hidden states differ by {error:.2g} of their size "
            'from those of each segment alone. Use learner.packing.layout = "padded"'
        )


def check_context(network: ActorCritic) -> None:
    """Raise unless ranks that divide a row compute what one rank computes for all of it. All ranks must call it.

    Layers other than attention that mix positions (convolutions, state spaces) see only the positions of their own rank.
    """
    context = network.context
    assert context is not None
    name, key = type(network.language_model).__name__, f"learner.context_parallel = {context.size}"
    _check_divisible(network, name, key)
    ids = _tokens(network, 8 * context.size)
    row = _row(ids, ids.shape[1:])

    def mine(row: Tensor) -> Tensor:
        return row.chunk(context.size, dim=1)[context.rank]

    nothing = np.zeros(0, dtype=np.int64)
    part_inputs = row._replace(input_ids=mine(ids), position_ids=mine(row.position_ids), part=RankPart(nothing, 0, nothing, 0))
    with _evaluating(network):
        with unknown_windows() as unknown:
            part = network.run(lambda: network.hidden(part_inputs)[1])
        undivided = network.run(lambda: network.hidden(row)[1])
    if unknown:
        raise Unsupported(
            f"{name} limits attention to {min(unknown)} positions in its mask alone, and {key} uses no mask. "
            "Use learner.context_parallel = 1"
        )
    error = context.largest(torch.tensor(_difference(part, mine(undivided)), device=ids.device))
    if not error <= _TOLERANCE[network.config.compute]:  # also if it is NaN
        raise Unsupported(
            f"{name} mixes positions outside of attention: with {key}, hidden states differ by {error:.2g} of their size from "
            "those of one rank. Use learner.context_parallel = 1"
        )


def _check_divisible(network: ActorCritic, name: str, key: str) -> None:
    if network.config.attention != SEGMENTS:
        raise UsageError(f'{key} needs model.attention = "{SEGMENTS}", got "{network.config.attention}"')
    if network.config.share_prefix:
        raise UsageError(f"{key} cannot be used with model.share_prefix: set only one of them")
    rope = getattr(network.language_model.config.get_text_config(), "rope_parameters", None) or {}
    kinds = {str(part.get("rope_type")) for part in (rope, *rope.values()) if isinstance(part, dict)}
    if moving := kinds & {"dynamic", "longrope"}:
        raise Unsupported(
            f"{name} has rotary positions of type {min(moving)}, which depend on the length that a rank sees, so {key} would "
            "change them. Use learner.context_parallel = 1"
        )


def check_sharing(network: ActorCritic) -> None:
    """Raise unless a shared prefix, computed once, gives the same hidden states as computing it in every row."""
    model = network.language_model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    row = torch.arange(1, WORTH_SHARING + 9, device=model.device)
    ids = torch.stack([row, torch.where(row > WORTH_SHARING, row + 100, row)]) * 7919 % vocabulary
    last = torch.tensor([ids.shape[1] - 1, ids.numel() - 1], device=model.device)
    positions = torch.arange(ids.shape[1], device=model.device).expand_as(ids)
    inputs = Inputs(ids, positions, torch.ones_like(ids), last, last[:0], last, prefix=WORTH_SHARING)
    try:
        with _evaluating(network):
            moved, shared = network.hidden(inputs)
            separate = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        error = _difference(shared.flatten(0, 1)[moved.ends], separate.flatten(0, 1)[last])
    except (AttributeError, IndexError, TypeError, RuntimeError) as failure:
        raise Unsupported(
            f"{type(model).__name__} cannot share prefixes ({failure}): use model.share_prefix = false"
        ) from failure
    if not error <= _TOLERANCE[network.config.compute]:  # also if it is NaN
        raise Unsupported(
            f"{type(model).__name__} gives other results with a shared prefix: hidden states differ by {error:.2g} of "
            "their size. Use model.share_prefix = false"
        )


def _tokens(network: ActorCritic, count: int) -> Tensor:
    """One row of ``count`` different tokens."""
    model = network.language_model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    row: Tensor = (torch.arange(1, count + 1, device=model.device) * 7919 % vocabulary).unsqueeze(0)
    return row


def _row(ids: Tensor, lengths: Any) -> Inputs:
    """A packed row of segments with these lengths."""
    positions = torch.cat([torch.arange(length, device=ids.device) for length in lengths]).unsqueeze(0)
    bounds = (0, *torch.tensor(lengths).cumsum(0).tolist())
    nothing = ids.new_zeros(0)
    return Inputs(ids, positions, None, nothing, nothing, nothing, bounds)


def _difference(some: Tensor, others: Tensor) -> float:
    # At the position where they differ most. Some dimensions are fifty times as large as the mean, and so is their rounding, so
    # the error of a single dimension says nothing.
    return float(((some - others).abs().mean(-1) / others.abs().mean(-1)).max())


@contextmanager
def _evaluating(network: ActorCritic) -> Iterator[None]:
    training = network.training
    network.eval()
    try:
        with torch.no_grad(), network.autocast():
            yield
    finally:
        network.train(training)
