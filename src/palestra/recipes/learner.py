"""Options of the learner: the optimizer, and the size of a micro-batch."""

from typing import Annotated, Literal

import msgspec

from palestra.foundation.references import Hook, Role
from palestra.recipes.algorithms import LossConfig

__all__ = ["SCHEDULE", "Layout", "LearnerConfig", "PackingConfig"]

Layout = Literal["padded", "packed"]
SCHEDULE = Role(
    "learner.schedule", ("progress",), {name: f"palestra.training.learner.learner:{name}" for name in ("linear", "cosine")}
)


class PackingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size and the memory layout of a micro-batch."""

    positions: Annotated[int, msgspec.Meta(ge=1)] = 16_384
    """The most positions of a micro-batch, padding included. A longer segment gets a micro-batch of its own; no segment is cut
    or dropped."""
    layout: Layout = "padded"
    """``padded``: one segment per row. ``packed``: all segments of a micro-batch in one row, without padding. A model whose
    packed segments would see each other is refused at the start."""


class LearnerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The optimizer, the loss and the size of a micro-batch."""

    learning_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 1e-6
    """The learning rate between warm-up and decay."""
    warmup: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of updates over which the rate rises linearly from 0."""
    decay: tuple[int, int] | None = None
    """First and last update of the decay. A run has steps × epochs × minibatches updates."""
    schedule: Hook = "linear"
    """How the rate falls between the two updates of ``decay``: ``linear`` to 0, ``cosine``, ``{use = "cosine", floor = 0.1}``
    to a tenth, or your own as ``module:name``: a function of the progress from 0 to 1 that returns the factor of the rate."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    offload: bool = False
    """Keep AdamW's moments in the memory of the host, and copy those of one parameter at a time to the GPU for an update. Saves
    8 bytes per trained parameter on the GPU. Each update copies as many bytes to the GPU, and back."""
    context_parallel: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Number of neighboring ranks that divide the positions of every micro-batch among them (Ulysses), for long episodes: each
    keeps that part of the activations. The number of ranks must be a multiple of it, and the heads of the model must be
    divisible by it. Needs ``model.attention = "segments"``."""
    gradient_clip: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """The largest norm of the gradient; a larger one is scaled down."""
    temperature: Annotated[float, msgspec.Meta(gt=0.0)] = 1.0
    """The sampling temperature. The learner divides the logits by it too."""
    packing: PackingConfig = PackingConfig()
    loss: LossConfig = LossConfig()

    def __post_init__(self) -> None:
        if self.decay is not None and not 0 <= self.decay[0] < self.decay[1]:
            raise ValueError(f"decay must be two numbers of updates, the second one larger, got {list(self.decay)}")
        SCHEDULE.check(self.schedule)
