"""Plan the memory of a learner without weights: run its passes on tensors that have a shape but no memory.

The network is built from the model's configuration, and its parameters become tensors of torch's ``FakeTensorMode``. Every
operation then computes shapes only, and ``_Live`` adds up the sizes of the tensors that are alive. So the plan holds what the
real code keeps: activations, masks, logits, temporary gradients, and the 16-bit copies of weights that autocast makes.

Layers of one kind need the same memory, so only a few of them are run: one period of the model's kinds of layers, and two. The
difference is what a period adds. A model of 32 billion parameters is planned in seconds.

Some families cannot be run without values: experts are chosen by the tokens. For these ``plan_memory`` returns no pass.
"""

import copy
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from palestra.training.algorithms.loss import undivided
from palestra.training.learner.attention import SEGMENTS, is_flash, register_segments
from palestra.training.learner.loading import assembled
from palestra.training.learner.model import ActorCritic, Inputs, ModelConfig
from palestra.training.learner.sharded import empty_model, hollow, replace_parameters

__all__ = ["LearnerMemory", "MicroBatchShape", "plan_memory"]

_FLOAT = 4
_SEGMENTS = 4
"""The most segments of a packed row in the plan."""


class MicroBatchShape(NamedTuple):
    """The largest micro-batch of a run."""

    segments: int
    length: int
    """Tokens of each segment."""
    sampled: int
    """How many of them were sampled."""
    packed: bool = False
    """Whether the segments share one row."""
    prefix: int = 0
    """Leading tokens that all segments have in common, if the learner computes them once."""


class LearnerMemory(NamedTuple):
    """What a learner needs."""

    parameters: int
    """The number of parameters, without adapters."""
    trained: int
    """The number of those that are trained."""
    passes: int | None
    """Bytes of the largest pass, beside weights, gradients and optimizer; ``None`` if the family cannot be planned."""
    gathered: int
    """Bytes that a rank needs in addition if the parameters are sharded: those that FSDP gathers for a layer."""
    copies: int
    """Bytes of ``passes`` that a rank does not need then: without FSDP, autocast keeps 16-bit copies of the weights."""


class _Part(NamedTuple):
    """What a network with some of the layers needs."""

    passes: int | None
    trained: int
    layers: int
    """The number of parameters in these layers."""
    largest: int
    """The number of parameters of the largest layer."""


def plan_memory(config: ModelConfig, settings: Any, shape: MicroBatchShape) -> LearnerMemory:
    """Return the memory of a learner of the model with the transformers configuration ``settings``."""
    register_segments()
    gpu = not config.device.startswith("cpu")
    attention = SEGMENTS if is_flash(config.attention) else config.attention  # both keep the same tensors
    config = msgspec.structs.replace(config, device="cpu", attention=attention)
    whole = empty_model(config, settings)
    parameters = sum(p.numel() for p in whole.parameters())
    count = int(settings.get_text_config().num_hidden_layers)
    period = _period(settings)
    with undivided() if gpu else nullcontext():
        small, large = (_planned(config, _shortened(settings, layers), shape) for layers in (period, 2 * period))

    def extended(some: int, more: int) -> int:
        return some + (more - some) * (count - period) // period

    passes = None if small.passes is None or large.passes is None else extended(small.passes, large.passes)
    layers = extended(small.layers, large.layers)
    outside = max(parameters - layers, 0) * _FLOAT
    half = config.compute == "bfloat16"
    return LearnerMemory(
        parameters=parameters,
        trained=extended(small.trained, large.trained),
        passes=passes,
        gathered=_gathered(outside, large.largest * _FLOAT, 2 if half else 1),
        copies=layers * _FLOAT // 2 if half else 0,
    )


def _gathered(outside: int, layer: int, part: int) -> int:
    """FSDP gathers a layer into a buffer, copies it into the parameters, and has begun with the next one. In the backward pass
    the gradients of a layer and of what is outside of all layers are whole before they are divided.
    """
    return (outside + 3 * layer) // part + outside + layer


def _period(settings: Any) -> int:
    """After how many layers the kinds of layers repeat; 1 if all are alike."""
    kinds = list(getattr(settings.get_text_config(), "layer_types", None) or [""])
    fits = (p for p in range(1, len(kinds) + 1) if all(kind == kinds[i % p] for i, kind in enumerate(kinds)))
    return next(fits)


def _shortened(settings: Any, layers: int) -> Any:
    """The configuration of the same model with ``layers`` layers."""
    short = copy.deepcopy(settings)
    text = short.get_text_config()
    kinds = getattr(text, "layer_types", None)
    text.num_hidden_layers = layers
    if kinds is not None:
        period = _period(settings)
        text.layer_types = [kinds[i % period] for i in range(layers)]
    return short


def _planned(config: ModelConfig, settings: Any, shape: MicroBatchShape) -> _Part:
    network = assembled(config, hollow(empty_model(config, settings)))
    layers = [_count(layer.parameters()) for layer in network.language_model.get_decoder().layers]
    trained = _count(p for p in network.parameters() if p.requires_grad)
    with FakeTensorMode(allow_non_fake_inputs=True):
        replace_parameters(network, lambda _: True, lambda p: torch.empty(p.shape, dtype=p.dtype))
        return _Part(_passes(network, shape), trained, sum(layers), max(layers))


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(int(p.numel()) for p in parameters)


def _passes(network: ActorCritic, shape: MicroBatchShape) -> int | None:
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)  # as from the second micro-batch on
    network.train()
    inputs = _inputs(shape)
    live = _Live()
    try:
        with live:
            out = network(inputs, 1.0)
            total = out.statistics.logprobs.sum() + (0.0 if out.values is None else out.values.sum())
            total.backward()
    except (RuntimeError, NotImplementedError):  # an operation whose result has a shape that depends on values
        return None
    return live.peak


def _inputs(shape: MicroBatchShape) -> Inputs:
    segments, length, sampled = shape.segments, shape.length, shape.sampled
    if (
        shape.packed and segments > _SEGMENTS
    ):  # the memory hardly depends on the number of segments, but the time of the plan does
        length, sampled = (-(-number * segments // _SEGMENTS) for number in (length, sampled))
        segments = _SEGMENTS
    rows = (1, segments * length) if shape.packed else (segments, length)
    ids = torch.zeros(rows, dtype=torch.int64)
    places = torch.arange(length).repeat(segments).view(rows)
    predictors, ends = torch.zeros(segments * sampled, dtype=torch.int64), torch.zeros(segments, dtype=torch.int64)
    if shape.packed:
        return Inputs(ids, places, None, predictors, predictors, ends, tuple(range(0, segments * length + 1, length)))
    return Inputs(ids, places, torch.ones_like(ids), predictors, predictors, ends, prefix=shape.prefix)


class _Live(TorchDispatchMode):  # type: ignore[misc]
    """Adds up the bytes of the tensors that operations have made and that still exist."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._now = 0
        self.peak = 0

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._enter(tensor.untyped_storage())
        return result

    def _enter(self, storage: Any) -> None:
        key, size = id(storage), storage.nbytes()
        if key in self._alive:
            return

        def leave(_: Any) -> None:
            self._now -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, leave)
        self._now += size
        self.peak = max(self.peak, self._now)
