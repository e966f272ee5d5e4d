"""Plan the memory of a learner without weights: run its passes on tensors that have a shape but no memory.

The network is built from the model's configuration, and its parameters become tensors of torch's ``FakeTensorMode``. Every
operation then computes shapes only, and ``_Live`` adds up the sizes of the tensors that are alive. So the plan holds what the
real code keeps: activations, masks, logits, temporary gradients, and the 16-bit copies of weights that autocast makes. What
exists before the pass is not part of it: weights, gradients that are added up, and inputs.

Layers of one kind need the same memory, so only a few of them are run: a few periods of the model's kinds of layers, and one
more. The difference is what a period adds, to the peak of the forward pass and to that of the backward pass.
A model of 32 billion parameters is planned in seconds.

With several ranks FSDP gathers the parameters of a layer in the type of the arithmetic, so autocast copies none. A second plan,
whose parameters have that type, says what a pass needs then.

Some families cannot be run without values: experts are chosen by the tokens. For these ``plan_memory`` returns no pass.
"""

import copy
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from palestra.errors import Unsupported
from palestra.recipes.model import ModelConfig
from palestra.training.algorithms.loss import undivided
from palestra.training.learner.attention import SEGMENTS, is_flash, register_segments
from palestra.training.learner.context import ContextGroup, RankPart
from palestra.training.learner.loading import assembled
from palestra.training.learner.model import ActorCritic, Inputs
from palestra.training.learner.sharded import empty_model, hollow, replace_parameters

__all__ = ["LearnerMemory", "MicroBatchShape", "plan_memory"]

_FLOAT = 4
_LEAST = 2
"""With fewer layers, the peak may be at a place where it is in no larger model."""
_BY_VALUES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
"""What operations raise whose result has a shape that depends on values."""
_EXPERTS = torch.ops.aten._grouped_mm.default
"""The product of each expert with its tokens. The tokens decide how many these are, and without values torch checks another
type than its CPU code takes."""
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
    divided: int = 1
    """The number of ranks that divide its positions."""


class LearnerMemory(NamedTuple):
    """What a learner needs."""

    parameters: int
    """The number of parameters, without adapters."""
    trained: int
    """The number of those that are trained."""
    passes: int | None
    """Bytes of the largest pass, beside weights, gradients and optimizer; ``None`` if the family cannot be planned."""
    sharded: int | None
    """The same bytes on a rank that has a shard of the parameters, and its part of a micro-batch that ranks divide."""
    gathered: int
    """Bytes that such a rank needs in addition: those that FSDP gathers for a layer."""


class _Peaks(NamedTuple):
    """Bytes. With more layers, the one may grow faster than the other."""

    forward: int
    backward: int


class _Part(NamedTuple):
    """What a network with some of the layers needs."""

    passes: _Peaks | None
    trained: int
    layers: int
    """The number of parameters in these layers."""
    largest: int
    """The number of parameters of the largest layer."""


def plan_memory(config: ModelConfig, settings: Any, shape: MicroBatchShape) -> LearnerMemory:
    """Return the memory of a learner of the model with the transformers configuration ``settings``.

    Raises:
        Unsupported: transformers does not build the model, or its layers are not where those of other models are.

    """
    register_segments()
    gpu = not config.device.startswith("cpu")
    attention = SEGMENTS if is_flash(config.attention) else config.attention  # both keep the same tensors
    config = msgspec.structs.replace(config, device="cpu", attention=attention)
    parameters = _count(_built(config, settings).parameters())
    half = config.compute == "bfloat16"
    with undivided() if gpu else nullcontext():
        alone = _extended(config, settings, shape._replace(divided=1), torch.float32)
        other = half or shape.divided > 1
        sharded = _extended(config, settings, shape, torch.bfloat16 if half else torch.float32) if other else alone
    outside = max(parameters - alone.layers, 0) * _FLOAT
    return LearnerMemory(
        parameters=parameters,
        trained=alone.trained,
        passes=None if alone.passes is None else max(alone.passes),
        sharded=None if sharded.passes is None else max(sharded.passes),
        gathered=_gathered(outside, alone.largest * _FLOAT, 2 if half else 1),
    )


def _built(config: ModelConfig, settings: Any) -> Any:
    try:
        model = empty_model(config, settings)
    except ValueError as error:
        raise Unsupported(f"transformers does not build this model: {error}") from error
    model.tie_weights()  # without memory, every name got a tensor of its own, so a tied embedding would count twice
    return model


def _extended(config: ModelConfig, settings: Any, shape: MicroBatchShape, dtype: torch.dtype) -> _Part:
    """What all layers need, if the parameters have the type ``dtype`` in a pass."""
    count = int(settings.get_text_config().num_hidden_layers)
    period = _period(settings)
    first = period * -(-_LEAST // period)
    small, large = (_planned(config, _shortened(settings, n), shape, dtype) for n in (first, first + period))

    def extended(some: int, more: int) -> int:
        return some + (more - some) * (count - first) // period

    return _Part(
        passes=None if small.passes is None or large.passes is None else _Peaks(*map(extended, small.passes, large.passes)),
        trained=extended(small.trained, large.trained),
        layers=extended(small.layers, large.layers),
        largest=large.largest,
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


def _planned(config: ModelConfig, settings: Any, shape: MicroBatchShape, dtype: torch.dtype = torch.float32) -> _Part:
    """Run the passes of the whole model with the configuration ``settings``."""
    network = assembled(config, hollow(_built(config, settings)))
    decoder = network.language_model.get_decoder()
    if not hasattr(decoder, "layers"):
        raise Unsupported(f"{type(decoder).__name__} has no attribute layers")
    layers = [_count(layer.parameters()) for layer in decoder.layers]
    trained = _count(p for p in network.parameters() if p.requires_grad)
    network.context = ContextGroup(shape.divided, 0) if shape.divided > 1 else None
    with FakeTensorMode(allow_non_fake_inputs=True):
        replace_parameters(network, lambda _: True, lambda p: torch.empty(p.shape, dtype=dtype))
        return _Part(_passes(network, shape), trained, sum(layers), max(layers))


def _count(parameters: Iterable[Tensor]) -> int:
    return sum(int(p.numel()) for p in parameters)


def _passes(network: ActorCritic, shape: MicroBatchShape) -> _Peaks | None:
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)  # as from the second micro-batch on
    network.train()
    inputs = _inputs(shape)
    gradients = [parameter.grad for parameter in network.parameters()]
    live = _Live([*network.parameters(), *gradients, *network.buffers(), *inputs])
    try:
        with live:
            out = network(inputs, 1.0)
            total = out.statistics.logprobs.sum() + (0.0 if out.values is None else out.values.sum())
            forward = live.restarted_peak()
            total.backward()
    except _BY_VALUES:
        return None
    return _Peaks(forward, live.restarted_peak())


def _inputs(shape: MicroBatchShape) -> Inputs:
    segments, length, sampled = shape.segments, shape.length, shape.sampled
    if (
        shape.packed and segments > _SEGMENTS
    ):  # the memory hardly depends on the number of segments, but the time of the plan does
        length, sampled = (-(-number * segments // _SEGMENTS) for number in (length, sampled))
        segments = _SEGMENTS
    if shape.divided > 1:
        return _divided_inputs(shape, segments, length, sampled)
    rows = (1, segments * length) if shape.packed else (segments, length)
    ids = torch.zeros(rows, dtype=torch.int64)
    places = torch.arange(length).repeat(segments).view(rows)
    predictors, ends = torch.zeros(segments * sampled, dtype=torch.int64), torch.zeros(segments, dtype=torch.int64)
    if shape.packed:
        return Inputs(ids, places, None, predictors, predictors, ends, tuple(range(0, segments * length + 1, length)))
    return Inputs(ids, places, torch.ones_like(ids), predictors, predictors, ends, prefix=shape.prefix)


def _divided_inputs(shape: MicroBatchShape, segments: int, length: int, sampled: int) -> Inputs:
    """The part of a rank whose positions predict as many of the sampled tokens as they can."""
    rows, columns, most = (1, segments * length, segments * sampled) if shape.packed else (segments, length, sampled)
    width = -(-columns // shape.divided)
    ids = torch.zeros(rows, width, dtype=torch.int64)
    tokens, ends = np.arange(rows * min(most, width)), np.arange(segments)
    part = RankPart(tokens, segments * sampled, ends, segments)
    predictors = torch.zeros(len(tokens), dtype=torch.int64)
    starts = range(0, columns, length) if shape.packed else [0]
    bounds = (*starts, width * shape.divided)
    return Inputs(ids, ids, None, predictors, predictors, torch.zeros(segments, dtype=torch.int64), bounds, part=part)


class _Live(TorchDispatchMode):
    """Adds up the bytes of the tensors that operations have made and that still exist.

    What operations write into the ``existing`` values, and views of these, are no new tensors.
    """

    def __init__(self, existing: Iterable[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._now = 0
        self._peak = 0
        for value in existing:
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                self._enter(storage, 0)

    def restarted_peak(self) -> int:
        """Return the most bytes since the last call."""
        peak, self._peak = self._peak, self._now
        return peak

    def __torch_dispatch__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is _EXPERTS:
            raise DynamicOutputShapeException(function)
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._enter(storage, storage.nbytes())
        return result

    def _enter(self, storage: Any, size: int) -> None:
        key = id(storage)
        if key in self._alive:
            return

        def leave(_: Any) -> None:
            self._now -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, leave)
        self._now += size
        self._peak = max(self._peak, self._now)
