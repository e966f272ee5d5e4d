"""The network that is trained: a transformers causal LM, all of it or LoRA adapters, with an optional critic head.

``ActorCritic`` runs the decoder once and applies the vocabulary head only to sampled tokens, in slices, because the logits are
by far the largest tensor of a micro-batch. ``loading`` builds the network, and ``checks`` refuses a model that it would not
reproduce.

With more than one rank, ``shard`` applies FSDP2 to every decoder layer and to the whole network. Parameters stay in float32;
``bfloat16`` is the type of the arithmetic only (autocast, or FSDP's mixed precision).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from palestra.errors import UsageError
from palestra.recipes.model import ModelConfig
from palestra.training.algorithms.loss import TokenStatistics, token_statistics
from palestra.training.learner.attention import segment_arguments
from palestra.training.learner.batch import MicroBatch
from palestra.training.learner.context import ContextGroup, RankPart, part_of

__all__ = [
    "ActorCritic",
    "Inputs",
    "Outputs",
    "shard",
]


_T = TypeVar("_T")


class Inputs(NamedTuple):
    """A micro-batch as tensors, or the part of it that this rank computes; see ``batch.MicroBatch``."""

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    predictors: Tensor
    targets: Tensor
    ends: Tensor
    bounds: tuple[int, ...] | None = None
    prefix: int = 0
    part: RankPart | None = None
    """What this rank computes, if the ranks of a group divide the micro-batch."""

    @classmethod
    def of(cls, micro: MicroBatch, device: torch.device, context: ContextGroup | None = None) -> "Inputs":
        """``micro`` on ``device``: all of it, or the part of this rank of ``context``."""
        micro, part = (micro, None) if context is None else part_of(micro, context)
        arrays = {name: getattr(micro, name) for name in cls._fields if name not in ("bounds", "prefix", "part")}
        tensors: dict[str, Any] = {
            n: None if array is None else torch.from_numpy(array).to(device) for n, array in arrays.items()
        }
        return cls(**tensors, bounds=micro.bounds, prefix=micro.prefix, part=part)


class Outputs(NamedTuple):
    """What the network computes for a micro-batch."""

    statistics: TokenStatistics
    values: Tensor | None
    """The critic's value of the state before each sampled token (T)."""
    end_values: Tensor | None
    """The critic's value of the state after each segment."""


class ActorCritic(nn.Module):
    """A causal LM that computes log-probabilities and values of sampled tokens only."""

    def __init__(self, model: Any, config: ModelConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.context: ContextGroup | None = None
        """The ranks that divide micro-batches with this one."""
        width = model.config.get_text_config().hidden_size
        self.critic = nn.Linear(width, 1) if config.critic else None
        if self.critic is not None:
            nn.init.zeros_(self.critic.weight)
            nn.init.zeros_(self.critic.bias)

    @property
    def language_model(self) -> Any:
        """The transformers model itself, below the adapters."""
        return self.model.get_base_model() if self.config.lora else self.model

    def without_adapters(self) -> AbstractContextManager[Any]:
        """Return a context in which the adapters are off: the network is the initial one."""
        context: AbstractContextManager[Any] = self.model.disable_adapter() if self.config.lora else nullcontext()
        return context

    def autocast(self) -> torch.autocast:
        """Return the context of the arithmetic's data type."""
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.config.compute == "bfloat16")

    def run(self, work: Callable[[], _T]) -> _T:
        """Run ``work``, which uses parts of the network, as a forward pass of the network: FSDP then gathers its parameters."""
        return work()

    def forward(self, inputs: Inputs, temperature: float, differentiable_entropy: bool = False) -> Outputs:
        with self.autocast():
            inputs, hidden = self.hidden(inputs)
            hidden = hidden.reshape(-1, hidden.shape[-1])
            states = hidden[inputs.predictors]
            statistics = self._speak(states, inputs.targets, temperature, differentiable_entropy)
            if self.critic is None:
                return self._gathered(inputs.part, Outputs(statistics, None, None))
            # Summed over their single column: a view, as squeeze() gives, would lose FSDP its backward hook.
            values, end_values = (self.critic(some).float().sum(-1) for some in (states, hidden[inputs.ends]))
            return self._gathered(inputs.part, Outputs(statistics, values, end_values))

    def _gathered(self, part: RankPart | None, outputs: Outputs) -> Outputs:
        """The outputs for the whole micro-batch, of which this rank has computed a part."""
        if part is None or self.context is None:
            return outputs
        device, gathered = outputs.statistics.logprobs.device, self.context.gathered
        tokens, segments = (torch.as_tensor(places, device=device) for places in (part.tokens, part.segments))
        statistics = TokenStatistics(*(gathered(statistic, tokens, part.token_count) for statistic in outputs.statistics))
        if outputs.values is None or outputs.end_values is None:
            return Outputs(statistics, None, None)
        return Outputs(
            statistics,
            gathered(outputs.values, tokens, part.token_count),
            gathered(outputs.end_values, segments, part.segment_count),
        )

    def hidden(self, inputs: Inputs) -> tuple[Inputs, Tensor]:
        """The last hidden states, and the inputs whose places refer to them."""
        decoder = self.language_model.get_decoder()
        shared = inputs.prefix if self.config.share_prefix else 0
        if not shared:
            states = decoder(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                position_ids=inputs.position_ids,
                use_cache=False,
                **segment_arguments(self.config.attention, inputs.bounds, inputs.input_ids.device, self._dividing(inputs)),
            ).last_hidden_state
            return inputs, states
        rows = len(inputs.input_ids)
        cache = DynamicCache()
        decoder(input_ids=inputs.input_ids[:1, :shared], past_key_values=cache, use_cache=True)
        # Seen by every row, stored once; the gradients of all rows add up in it.
        layers: list[Any] = cache.layers
        for layer in layers:
            layer.keys, layer.values = (part.expand(rows, -1, -1, -1) for part in (layer.keys, layer.values))
        states = decoder(
            input_ids=inputs.input_ids[:, shared:],
            attention_mask=inputs.attention_mask,
            position_ids=inputs.position_ids[:, shared:],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return _without_prefix(inputs, shared), states

    def _dividing(self, inputs: Inputs) -> ContextGroup | None:
        """The ranks that divide ``inputs``; ``None`` if this rank computes all of it."""
        return None if inputs.part is None else self.context

    def _speak(self, states: Tensor, targets: Tensor, temperature: float, differentiable_entropy: bool) -> TokenStatistics:
        head = self.language_model.get_output_embeddings()

        def piece(some: Tensor, ids: Tensor) -> TokenStatistics:
            return token_statistics(head(some), ids, temperature, differentiable_entropy=differentiable_entropy)

        size = self.config.head_slice
        if len(states) <= size:
            return piece(states, targets)
        pieces = [
            checkpoint(piece, states[i : i + size], targets[i : i + size], use_reentrant=False)
            for i in range(0, len(states), size)
        ]
        return TokenStatistics(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def _without_prefix(inputs: Inputs, shared: int) -> Inputs:
    """``inputs`` whose places are counted in rows that begin after the prefix."""
    length = inputs.input_ids.shape[1]

    def moved(places: Tensor) -> Tensor:
        return places // length * (length - shared) + places % length - shared

    return inputs._replace(predictors=moved(inputs.predictors), ends=moved(inputs.ends))


def shard(network: ActorCritic) -> None:
    """Apply FSDP2: one group of parameters per decoder layer, and one for the rest."""
    if network.config.share_prefix:
        raise UsageError("model.share_prefix needs one rank: ranks with different prefixes would wait for each other forever")
    policy = MixedPrecisionPolicy()
    if network.config.compute == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in network.language_model.get_decoder().layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(network, mp_policy=policy)
    register_fsdp_forward_method(network, "run")
    # Losses carry their global weights: gradients are summed over ranks, where FSDP would average them.
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
