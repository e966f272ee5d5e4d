"""Plan the memory of a learner without weights: run its passes on tensors that have a shape but no memory.

The network is built from the model's configuration in torch's ``FakeTensorMode``. Every operation then computes shapes only,
and ``_Live`` adds up the sizes of the tensors that are alive. So the plan holds what the real code keeps: activations, masks,
logits, temporary gradients, and the 16-bit copies of weights that autocast makes. No weights are needed.

Some families cannot be run without values: experts are chosen by the tokens. For these ``plan_memory`` returns no pass.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from palestra.training.learner.attention import SEGMENTS, is_flash, register_segments
from palestra.training.learner.batch import PackingConfig
from palestra.training.learner.loading import assembled
from palestra.training.learner.model import ActorCritic, Inputs, ModelConfig

__all__ = ["LearnerMemory", "plan_memory"]

_FLOAT = 4
_SEGMENTS = 4
"""The most segments of a packed row in the plan."""


class LearnerMemory(NamedTuple):
    """Bytes of a learner with one rank, and what another rank adds."""

    parameters: int
    """The number of parameters."""
    trained: int
    """The number of those that are trained."""
    passes: int | None
    """Bytes of the largest pass, beside weights, gradients and optimizer; ``None`` if the family cannot be planned."""
    gathered: int
    """Bytes that a rank needs in addition if the parameters are sharded: those that a layer gathers while it computes."""


def plan_memory(config: ModelConfig, settings: Any, packing: PackingConfig, length: int) -> LearnerMemory:
    """Return the memory of a learner of the model with the transformers configuration ``settings``.

    Every micro-batch is full of segments of ``length`` tokens, and all of these are sampled.
    """
    import transformers

    register_segments()
    attention = SEGMENTS if is_flash(config.attention) else config.attention  # both keep the same tensors
    config = msgspec.structs.replace(config, device="cpu", share_prefix=False, attention=attention)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.float32, attn_implementation=attention)
        network = assembled(config, model)
        parameters = list(network.parameters())
        return LearnerMemory(
            parameters=sum(p.numel() for p in parameters),
            trained=sum(p.numel() for p in parameters if p.requires_grad),
            passes=_passes(network, packing, length),
            gathered=_gathered(network),
        )


def _passes(network: ActorCritic, packing: PackingConfig, length: int) -> int | None:
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)  # as from the second micro-batch on
    network.train()
    inputs = _inputs(packing, min(length, packing.positions))
    live = _Live()
    try:
        with live:
            out = network(inputs, 1.0)
            total = out.statistics.logprobs.sum() + (0.0 if out.values is None else out.values.sum())
            total.backward()
    except (RuntimeError, NotImplementedError):  # an operation whose result has a shape that depends on values
        return None
    return live.peak


def _inputs(packing: PackingConfig, length: int) -> Inputs:
    if packing.layout == "packed":  # the memory does not depend on the number of segments, but the time of the plan does
        length = max(length, packing.positions // _SEGMENTS)
    segments = max(packing.positions // length, 1)
    rows = (segments, length) if packing.layout == "padded" else (1, segments * length)
    ids = torch.zeros(rows, dtype=torch.int64)
    places = torch.arange(length).repeat(segments).view(rows)
    predictors = torch.arange(segments * length - segments)
    ends = torch.arange(segments)
    bounds = None if packing.layout == "padded" else tuple(range(0, segments * length + 1, length))
    mask = torch.ones(rows, dtype=torch.int64) if packing.layout == "padded" else None
    return Inputs(ids, places, mask, predictors, predictors, ends, bounds)


def _gathered(network: ActorCritic) -> int:
    """FSDP gathers a layer into a buffer, copies it into the parameters, and has begun with the next one. In the backward pass
    the gradients of a layer and of what is outside of all layers are whole before they are divided.
    """
    layers = [_bytes(layer.parameters()) for layer in network.language_model.get_decoder().layers]
    outside = _bytes(network.parameters()) - sum(layers)
    part = 2 if network.config.compute == "bfloat16" else 1
    return (outside + 3 * max(layers)) // part + outside + max(layers)


def _bytes(parameters: Iterable[Tensor]) -> int:
    return sum(int(p.numel()) for p in parameters) * _FLOAT


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
