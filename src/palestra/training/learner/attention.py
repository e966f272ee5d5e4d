"""``segments``: attention that computes each packed segment alone, so that no mask over the whole row exists.

transformers describes packed segments by a dense mask of L × L entries and then computes all L² scores. A row of 16,384
positions needs 268 MB for the mask alone. This implementation gets the bounds of the segments instead and calls torch's fused
attention once per segment. A layer with a sliding window is computed in blocks of queries, each of which sees one window of
keys. Padded rows have one segment per row and use the mask of transformers.

It also supports attention sinks (gpt-oss), which torch's fused attention does not.

``segment_arguments`` returns what a decoder needs to know about packed rows: the bounds for ``segments``, ``cu_seqlens`` for
the variable-length kernels of flash attention, and nothing for the other implementations, which take the segments from the
position ids.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from palestra.errors import Unsupported
from palestra.training.learner.context import ContextGroup

__all__ = ["SEGMENTS", "SegmentBounds", "attend", "is_flash", "register_segments", "segment_arguments", "unknown_windows"]

SEGMENTS = "segments"
_BLOCK = 512
"""The fewest queries of a block in a layer with a sliding window."""
_windows: ContextVar[tuple[set[int], set[int]] | None] = ContextVar("windows", default=None)
"""The windows that the model asked masks for, and those that its layers passed on; ``None`` outside of ``unknown_windows``."""


class SegmentBounds:
    """Where each segment of a packed row begins, and the end of the last; and the ranks that divide the row, if some do.

    An object, because ``torch.compile`` would compile a layer again for every other tuple of numbers.
    """

    def __init__(self, places: tuple[int, ...], context: ContextGroup | None = None) -> None:
        self.places = places
        self.context = context


def is_flash(attention: str) -> bool:
    """Whether the implementation named ``attention`` is a flash attention, which needs 16-bit queries."""
    return "flash" in attention


def register_segments() -> None:
    """Make ``segments`` known to transformers."""
    AttentionInterface.register(SEGMENTS, attend)
    AttentionMaskInterface.register(SEGMENTS, _mask)


def segment_arguments(
    attention: str, bounds: tuple[int, ...] | None, device: torch.device, context: ContextGroup | None = None
) -> dict[str, Any]:
    """Return the keywords for a decoder whose row holds segments with these ``bounds``; ``None`` stands for padded rows.

    ``context``: the ranks that divide the row, which only ``segments`` knows.
    """
    if bounds is None:
        return {}
    if attention == SEGMENTS:
        return {"segment_bounds": SegmentBounds(bounds, context)}
    if not is_flash(attention):
        return {}
    ends = torch.tensor(bounds, dtype=torch.int32, device=device)
    longest = max(stop - start for start, stop in pairwise(bounds))
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}


@contextmanager
def unknown_windows() -> Iterator[set[int]]:
    """Collect, by the end of the block, the windows that only the model's masks know and ``segments`` therefore ignores.

    Some families write their window or chunk into the mask and do not pass it to the attention itself.
    """
    asked, passed, unknown = set[int](), set[int](), set[int]()
    token = _windows.set((asked, passed))
    try:
        yield unknown
    finally:
        _windows.reset(token)
        unknown |= asked - passed


def _mask(*args: Any, attention_mask: Tensor | None = None, local_size: int | None = None, **kwargs: Any) -> Tensor | None:
    """No mask for rows without padding: ``attend`` knows segments and windows by itself."""
    if local_size is not None and (windows := _windows.get()) is not None:
        windows[0].add(local_size)
    if attention_mask is None:
        return None
    kwargs.update(local_size=local_size, attention_mask=attention_mask)
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return mask


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention of (rows, heads, positions, width) as transformers calls it; the result is (rows, positions, heads, width)."""
    if unknown := [name for name in ("softcap", "position_bias") if options.get(name) is not None]:
        raise Unsupported(
            f'{type(module).__name__} uses {unknown[0]}, which model.attention = "{SEGMENTS}" does not support: use "eager"'
        )
    sinks: Tensor | None = options.get("s_aux")
    scale: float | None = options.get("scaling")
    if attention_mask is not None:
        if sinks is None:
            attended: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
            return attended
        return _with_sinks(query, *_repeated(query, key, value), attention_mask, sinks, scale).transpose(1, 2), None
    segments: SegmentBounds | None = options.get("segment_bounds")
    context = None if segments is None else segments.context
    if context is not None:
        query, key, value = context.with_whole_rows(query, key, value)
        sinks = None if sinks is None else context.own_heads(sinks)
    bounds = (0, query.shape[2]) if segments is None else segments.places
    if sinks is not None:
        key, value = _repeated(query, key, value)
    window: int | None = options.get("sliding_window")
    if window is not None and (windows := _windows.get()) is not None:
        windows[1].add(window)
    parts = [
        part.transpose(1, 2)
        for start, stop in pairwise(bounds)
        for part in _causal([some[:, :, start:stop] for some in (query, key, value)], window, sinks, scale)
    ]
    result = torch.cat(parts, dim=1)
    return result if context is None else context.with_own_positions(result), None


def _causal(segment: Sequence[Tensor], window: int | None, sinks: Tensor | None, scale: float | None) -> Iterator[Tensor]:
    """Yield the attention of one segment (query, key, value), block by block of its queries."""
    query, key, value = segment
    length = query.shape[2]
    if window is None or window >= length:
        yield _block(query, key, value, None if sinks is None else _band(length, length, length, query.device), sinks, scale)
        return
    size = max(window, _BLOCK)
    for start in range(0, length, size):
        stop, first = min(start + size, length), max(start - window + 1, 0)
        mask = _band(stop - start, stop - first, window, query.device)
        yield _block(query[:, :, start:stop], key[:, :, first:stop], value[:, :, first:stop], mask, sinks, scale)


def _block(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None, scale: float | None) -> Tensor:
    if sinks is not None and mask is not None:
        return _with_sinks(query, key, value, mask, sinks, scale)
    grouped = key.shape[1] != query.shape[1]
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )


def _with_sinks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, sinks: Tensor, scale: float | None) -> Tensor:
    """Attention with one more score per head, which takes its part of the softmax and has no value."""
    scores = (query @ key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    column = sinks.to(scores.dtype).reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    shares = torch.cat([scores, column], dim=-1).softmax(dim=-1)[..., :-1]
    return shares.to(value.dtype) @ value


def _band(queries: int, keys: int, window: int, device: torch.device) -> Tensor:
    """Which keys each query sees: the last query is at the last key, and a query sees ``window`` keys up to its own."""
    places = torch.arange(keys - queries, keys, device=device).unsqueeze(1) - torch.arange(keys, device=device)
    return (places >= 0) & (places < window)


def _repeated(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    groups = query.shape[1] // key.shape[1]
    return repeat_kv(key, groups), repeat_kv(value, groups)
