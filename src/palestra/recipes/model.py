"""Options of the network that learns."""

from typing import Annotated, Literal

import msgspec

__all__ = ["LoraSettings", "ModelConfig"]


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
    """The data type of the arithmetic. Weights and optimizer stay in float32. On a CPU without instructions for bfloat16,
    float32 is faster."""
    recompute: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    compile: str = ""
    """The backend of ``torch.compile`` for the decoder layers, such as ``inductor``; empty to compile nothing. The first steps
    take longer, the later ones less time. ``inductor`` needs a C++ compiler, and on a GPU ``triton``."""
    attention: str = "segments"
    """``segments``: torch's fused attention, one segment at a time. Or an implementation of transformers: ``sdpa``, ``eager``,
    or ``flash_attention_2`` on a GPU, which needs ``compute = "bfloat16"`` and the package ``flash-attn``."""
    head_slice: Annotated[int, msgspec.Meta(ge=1)] = 2048
    """The number of sampled tokens whose logits are in memory at the same time."""
    share_prefix: bool = False
    """Compute the common prefix of all segments of a micro-batch once. The gradient is the same, and few-shot examples cost
    almost nothing. Needs one rank and the padded layout."""
