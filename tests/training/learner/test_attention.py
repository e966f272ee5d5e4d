"""Attention by segments against attention with a dense mask, and flash attention by kernels that accept what it accepts."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.tiny import gradients, learner_of, measured_batch, random_batch, tiny_model, tiny_network
from torch import Tensor
from transformers import PreTrainedModel, modeling_flash_attention_utils

from palestra.errors import Unsupported, UsageError
from palestra.recipes.model import ModelConfig
from palestra.training.learner import attention
from palestra.training.learner.attention import SEGMENTS, SegmentBounds, segment_arguments
from palestra.training.learner.loading import load_model

pytestmark = pytest.mark.torch

BOUNDS = (0, 7, 8, 30)
BESIDE = torch.nn.Module()


def reference(query: Tensor, key: Tensor, value: Tensor, window: int | None, sinks: Tensor | None) -> Tensor:
    """Attention over the whole row with a mask, written as in the textbook."""
    length, groups = query.shape[2], query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    place = torch.arange(length)
    segment = torch.bucketize(place, torch.tensor(BOUNDS[1:]), right=True)
    distance = place[:, None] - place[None]
    seen = (segment[:, None] == segment[None]) & (distance >= 0) & (distance < (window or length))
    scores = (query @ key.transpose(2, 3) / query.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(1, -1, 1, 1).expand(1, -1, length, 1)], -1)
    attended: torch.Tensor = (scores.softmax(-1)[..., :length] @ value).transpose(1, 2)
    return attended


@pytest.mark.parametrize("window", [None, 1, 3, 5, 40])
@pytest.mark.parametrize("with_sinks", [False, True])
@pytest.mark.parametrize("divided", [False, True])
def test_segments_and_windows_need_no_mask(
    window: int | None, with_sinks: bool, divided: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    context = request.getfixturevalue("alone") if divided else None
    monkeypatch.setattr(attention, "_BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 4, 30, 8), (1, 2, 30, 8), (1, 2, 30, 8), (4,)
    tensors = [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]
    query, key, value, sinks = tensors
    used = sinks if with_sinks else None
    options: dict[str, Any] = {"sliding_window": window, "s_aux": used, "scaling": None}
    mine, _ = attention.attend(BESIDE, query, key, value, None, segment_bounds=SegmentBounds(BOUNDS, context), **options)
    expected = reference(query, key, value, window, used)
    torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(mine.shape, generator=generator)
    asked = tensors if with_sinks else tensors[:3]
    ours, theirs = (torch.autograd.grad((result * weights).sum(), asked) for result in (mine, expected))
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_what_segments_do_not_support_is_refused() -> None:
    some = torch.zeros(1, 1, 4, 8)
    with pytest.raises(Unsupported, match=r'softcap.*use "eager"'):
        attention.attend(BESIDE, some, some, some, None, softcap=30.0)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_gradient_is_that_of_a_dense_mask(layout: str) -> None:
    dense, segments = (learner_of(network=tiny_network(attention=name), layout=layout) for name in ("sdpa", SEGMENTS))
    batch = measured_batch(dense)
    for learner in (dense, segments):
        learner.accumulate(batch)
    expected = gradients(dense)
    assert float((gradients(segments) - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


# ----------------------------------------------------------------------------------------------------------- flash attention


class Kernels:
    """The functions of flash-attn 2, with its demands on what it is given, computed by torch."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def dense(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, dropout_p: float, softmax_scale: float) -> Tensor:
        self.demand(q, k, v, causal, 4)
        return self.compute(q, k, v, softmax_scale)

    def varlen(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        causal: bool,
        dropout_p: float,
        softmax_scale: float,
    ) -> Tensor:
        self.demand(q, k, v, causal, 3)
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        bounds = cu_seqlens_q.tolist()
        assert bounds[0] == 0
        assert bounds[-1] == len(q)
        assert max_seqlen_q == max_seqlen_k == int(np.diff(bounds).max())
        self.calls.append(bounds)
        parts = [[some[a:b].unsqueeze(0) for some in (q, k, v)] for a, b in pairwise(bounds)]
        return torch.cat([self.compute(one, other, third, softmax_scale)[0] for one, other, third in parts])

    @staticmethod
    def demand(q: Tensor, k: Tensor, v: Tensor, causal: bool, dimensions: int) -> None:
        assert {some.dtype for some in (q, k, v)} <= {torch.bfloat16, torch.float16}, "flash attention computes in 16 bits"
        assert q.dim() == dimensions
        assert q.shape[-2] % k.shape[-2] == 0
        assert q.shape[-1] % 8 == 0
        assert causal

    @staticmethod
    def compute(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        q, k, v = (some.transpose(1, 2) for some in (q, k, v))
        full = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        return full.transpose(1, 2)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    theirs, stub = modeling_flash_attention_utils, Kernels()
    pad: Callable[..., Any] = theirs._pad_input
    functions = (stub.dense, stub.varlen, None, pad, theirs._unpad_input)
    monkeypatch.setattr(theirs, "_lazy_imports", lambda *args, **kwargs: functions)
    monkeypatch.setattr(theirs, "_loaded_implementation", None)
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *args, **kwargs: True)
    return stub


def test_flash_attention_gets_the_segments(kernels: Kernels) -> None:
    flash = load_model(ModelConfig("", attention="flash_attention_2", compute="bfloat16"), tiny_model())
    batch = random_batch()
    expected = learner_of(network=tiny_network(critic=False)).measure(batch).logprobs
    padded = learner_of(network=flash).measure(batch).logprobs
    kernels.calls.clear()
    packed = learner_of(network=flash, layout="packed")
    found = packed.measure(batch).logprobs
    # Two layers of two passes of the check and of one of the batch: the segments are never one sequence.
    lengths = sorted(len(ids) for ids in batch.ids)
    assert sorted(np.diff(kernels.calls[-1]).tolist()) == lengths
    assert np.abs(found - expected).max() <= 0.1
    assert np.abs(padded - expected).max() <= 0.1
    packed.accumulate(measured_batch(packed))
    assert torch.isfinite(gradients(packed)).all()


def test_flash_attention_needs_16_bits() -> None:
    with pytest.raises(UsageError, match=r'set model\.compute = "bfloat16"'):
        load_model(ModelConfig("", attention="flash_attention_2"), tiny_model())


def test_other_implementations_take_the_segments_from_the_positions() -> None:
    assert segment_arguments("sdpa", BOUNDS, torch.device("cpu")) == {}
    assert segment_arguments(SEGMENTS, None, torch.device("cpu")) == {}
