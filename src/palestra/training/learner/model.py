"""The network that is trained: a transformers causal LM, all of it or LoRA adapters, with an optional critic head.

``ActorCritic`` runs the decoder once and applies the vocabulary head only to sampled tokens, in slices, because the logits are
by far the largest tensor of a micro-batch. Some model families transform their logits further (soft caps, scales).
``check_head`` compares with the model's own forward pass once, at the start, and refuses a model whose logits it cannot
reproduce.

With more than one rank, ``shard`` applies FSDP2 to every decoder layer and to the whole network. Parameters stay in float32;
``bfloat16`` is the type of the arithmetic only (autocast, or FSDP's mixed precision).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache

from palestra.errors import Unsupported, UsageError
from palestra.training.algorithms.loss import TokenStatistics, token_statistics
from palestra.training.learner.batch import MicroBatch

__all__ = [
    "ActorCritic",
    "Inputs",
    "LoraSettings",
    "ModelConfig",
    "Outputs",
    "check_head",
    "check_packing",
    "full_weights",
    "load_model",
    "shard",
]


class LoraSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Train low-rank adapters instead of all weights."""

    rank: Annotated[int, msgspec.Meta(ge=1)] = 16
    """The rank of the adapters."""
    alpha: float = 32.0
    """The adapters' output is scaled by alpha / rank."""
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the layers that get an adapter."""


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network, and how it computes."""

    path: str
    """A model folder or a name on the Hugging Face hub. ``smollm2`` is fetched; ``tiny:ID`` and ``tiny-words:ID`` are
    built for the environment ``ID``, from phrases or from words."""
    device: str = "cpu"
    """The device of the learner: ``cpu``, ``cuda``, ``cuda:1``."""
    lora: LoraSettings | None = None
    """Train adapters instead of all weights."""
    critic: bool = False
    """Add a value head to the policy's last hidden state."""
    compute: Literal["float32", "bfloat16"] = "float32"
    """The data type of the arithmetic. Weights and optimizer stay in float32."""
    recompute: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    attention: str = "sdpa"
    """The attention implementation of transformers."""
    head_slice: Annotated[int, msgspec.Meta(ge=1)] = 2048
    """The number of sampled tokens whose logits are in memory at the same time."""
    share_prefix: bool = False
    """Compute the common prefix of all segments of a micro-batch once. The gradient is the same, and few-shot examples cost
    almost nothing. Needs one rank and the padded layout."""


class Inputs(NamedTuple):
    """A micro-batch as tensors; see ``batch.MicroBatch``."""

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    predictors: Tensor
    targets: Tensor
    ends: Tensor

    @classmethod
    def of(cls, micro: MicroBatch, device: torch.device) -> "Inputs":
        """``micro`` on ``device``."""
        arrays = (getattr(micro, name) for name in cls._fields)
        return cls(*(None if array is None else torch.from_numpy(array).to(device) for array in arrays))


class Outputs(NamedTuple):
    """What the network computes for a micro-batch."""

    statistics: TokenStatistics
    values: Tensor | None
    """The critic's value of the state before each sampled token (T)."""
    end_values: Tensor | None
    """The critic's value of the state after each segment."""


class ActorCritic(nn.Module):  # type: ignore[misc]
    """A causal LM that computes log-probabilities and values of sampled tokens only."""

    def __init__(self, model: Any, config: ModelConfig) -> None:
        super().__init__()
        self.model = model
        self.config = config
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

    def forward(self, inputs: Inputs, temperature: float, differentiable_entropy: bool = False) -> Outputs:
        device = inputs.input_ids.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.config.compute == "bfloat16"):
            inputs, hidden = self._hidden(inputs)
            hidden = hidden.reshape(-1, hidden.shape[-1])
            states = hidden[inputs.predictors]
            statistics = self._speak(states, inputs.targets, temperature, differentiable_entropy)
            if self.critic is None:
                return Outputs(statistics, None, None)
            # Summed over their single column: a view, as squeeze() gives, would lose FSDP its backward hook.
            values, end_values = (self.critic(some).float().sum(-1) for some in (states, hidden[inputs.ends]))
            return Outputs(statistics, values, end_values)

    def _hidden(self, inputs: Inputs) -> tuple[Inputs, Tensor]:
        """The last hidden states, and the inputs whose places refer to them."""
        decoder = self.language_model.get_decoder()
        shared = _shared_prefix(inputs) if self.config.share_prefix else 0
        if not shared:
            states = decoder(
                input_ids=inputs.input_ids,
                attention_mask=inputs.attention_mask,
                position_ids=inputs.position_ids,
                use_cache=False,
            ).last_hidden_state
            return inputs, states
        rows = len(inputs.input_ids)
        cache = DynamicCache()
        decoder(input_ids=inputs.input_ids[:1, :shared], past_key_values=cache, use_cache=True)
        # Seen by every row, stored once; the gradients of all rows add up in it.
        for layer in cache.layers:
            layer.keys, layer.values = (part.expand(rows, -1, -1, -1) for part in (layer.keys, layer.values))
        states = decoder(
            input_ids=inputs.input_ids[:, shared:],
            attention_mask=inputs.attention_mask,
            position_ids=inputs.position_ids[:, shared:],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        return _without_prefix(inputs, shared), states

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


_PACKING_TOLERANCE = 1e-2
"""Of the hidden states' size. Rounding in float32 stays below 1e-4."""
_WORTH_SHARING = 16
"""Tokens of common prefix from which on computing it apart pays."""


def _shared_prefix(inputs: Inputs) -> int:
    """How many leading tokens all rows have in common, as far as nothing is asked about them."""
    rows, length = inputs.input_ids.shape
    if rows < 2 or inputs.attention_mask is None:
        return 0
    alike = (inputs.input_ids == inputs.input_ids[:1]).all(0) & inputs.attention_mask.all(0)
    common = int(alike.int().cumprod(0).sum())
    asked = torch.cat([inputs.predictors, inputs.ends]) % length
    common = min(common, int(asked.min()))
    return common if common >= _WORTH_SHARING else 0


def _without_prefix(inputs: Inputs, shared: int) -> Inputs:
    """``inputs`` whose places are counted in rows that begin after the prefix."""
    length = inputs.input_ids.shape[1]

    def moved(places: Tensor) -> Tensor:
        return places // length * (length - shared) + places % length - shared

    return inputs._replace(predictors=moved(inputs.predictors), ends=moved(inputs.ends))


def load_model(config: ModelConfig, model: Any = None) -> ActorCritic:
    """Build the network of ``config``, around ``model`` if one is given instead of a path."""
    if config.share_prefix and config.recompute:
        raise UsageError("model.share_prefix keeps activations that model.recompute discards: set only one of them")
    if model is None:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(config.path, dtype=torch.float32, attn_implementation=config.attention)
    model.to(config.device)
    if config.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if config.lora is not None:
        from peft import LoraConfig, get_peft_model

        targets = config.lora.targets if isinstance(config.lora.targets, str) else list(config.lora.targets)
        settings = LoraConfig(r=config.lora.rank, lora_alpha=config.lora.alpha, target_modules=targets, bias="none")
        model = get_peft_model(model, settings)
    network = ActorCritic(model, config)
    network.to(config.device)
    check_head(network)
    if config.share_prefix:
        check_sharing(network)
    return network


def check_head(network: ActorCritic) -> None:
    """Raise unless decoder and head give the logits that the model's own forward pass gives."""
    model = network.language_model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    ids = torch.arange(1, 9, device=model.device).unsqueeze(0) * 7919 % vocabulary
    training = model.training
    model.eval()
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        parts = model.get_output_embeddings()(model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state)
    model.train(training)
    if not torch.allclose(whole, parts, rtol=1e-3, atol=1e-3):
        raise Unsupported(
            f"{type(model).__name__} transforms its logits after the head: they differ by up to "
            f"{(whole - parts).abs().max():.3g}. Training would use other probabilities than sampling, so it is not supported"
        )


def check_packing(network: ActorCritic) -> None:
    """Raise unless two segments that share a row are computed as if each were alone.

    Position ids that restart tell packed segments apart. Layers that ignore them (convolutions, state spaces, some attention
    kernels) let the second segment see the first, and the policy that is trained is then not the one that was sampled.
    """
    model = network.language_model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    ids = (torch.arange(1, 33, device=model.device) * 7919 % vocabulary).unsqueeze(0)
    parts = ids[:, :12], ids[:, 12:]
    positions = torch.cat([torch.arange(part.shape[1], device=model.device) for part in parts]).unsqueeze(0)
    training = model.training
    model.eval()
    with torch.no_grad():
        decoder = model.get_decoder()
        packed = decoder(input_ids=ids, attention_mask=None, position_ids=positions, use_cache=False).last_hidden_state
        alone = torch.cat([decoder(input_ids=part, use_cache=False).last_hidden_state for part in parts], dim=1)
    model.train(training)
    # Hidden states have the scale of the last normalisation, so one tolerance serves models with small and large logits.
    error = float((packed - alone).abs().max() / alone.abs().mean())
    if error > _PACKING_TOLERANCE:
        raise Unsupported(
            f"{type(model).__name__} lets packed segments see each other: hidden states differ by {error:.2g} of their size "
            'from those of each segment alone. Use learner.packing.layout = "padded"'
        )


def check_sharing(network: ActorCritic) -> None:
    """Raise unless a shared prefix, computed once, gives the same hidden states as computing it in every row."""
    model = network.language_model
    vocabulary = model.get_output_embeddings().weight.shape[0]
    row = torch.arange(1, _WORTH_SHARING + 9, device=model.device)
    ids = torch.stack([row, torch.where(row > _WORTH_SHARING, row + 100, row)]) * 7919 % vocabulary
    last = torch.tensor([ids.shape[1] - 1, ids.numel() - 1], device=model.device)
    positions = torch.arange(ids.shape[1], device=model.device).expand_as(ids)
    inputs = Inputs(ids, positions, torch.ones_like(ids), last, last[:0], last)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            moved, shared = network._hidden(inputs)
            whole = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
        error = float((shared.flatten(0, 1)[moved.ends] - whole.flatten(0, 1)[last]).abs().max() / whole.abs().mean())
    except (AttributeError, IndexError, TypeError, RuntimeError) as failure:
        raise Unsupported(f"{type(model).__name__} cannot share prefixes ({failure}): use model.share_prefix = false") from None
    finally:
        model.train(training)
    if error > _PACKING_TOLERANCE:
        raise Unsupported(
            f"{type(model).__name__} gives other results with a shared prefix: hidden states differ by {error:.2g} of "
            "their size. Use model.share_prefix = false"
        )


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
    # Losses carry their global weights: gradients are summed over ranks, where FSDP would average them.
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def full_weights(network: ActorCritic) -> Iterator[tuple[str, Tensor]]:
    """Yield the policy's full weights on the CPU, under the names of transformers, with adapters merged.

    Every rank must take part: sharded tensors are gathered one at a time.
    """
    adapted = {name: module for name, module in network.language_model.named_modules() if hasattr(module, "lora_A")}
    for name, parameter in network.language_model.state_dict().items():
        if ".lora_" in name:
            continue
        weight = _whole(parameter)
        owner = name.removesuffix(".base_layer.weight")
        if owner in adapted:
            module = adapted[owner]
            up, down = _whole(module.lora_B["default"].weight), _whole(module.lora_A["default"].weight)
            weight = weight + module.scaling["default"] * (up @ down)
        yield name.replace(".base_layer.", "."), weight


def _whole(tensor: Tensor) -> Tensor:
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return tensor.detach().cpu()
