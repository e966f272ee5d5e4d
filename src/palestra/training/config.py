"""What a training run is made of: one TOML file (a recipe), resolved into frozen structs.

Each part's configuration stands beside its owner; here they are put together. ``recipe`` reads the file and puts overrides
such as ``learner.learning_rate=1e-5`` over it. The resolved configuration is saved beside the run, so that what was run can be
read back. Every field has a default that is sound, or none at all; every bound is checked when the recipe is read.
"""

from typing import Annotated, Any, Literal

import msgspec

from palestra.errors import UsageError
from palestra.training.advantage import AdvantageConfig
from palestra.training.groups import PartialGroups
from palestra.training.horizon import HorizonConfig
from palestra.training.learner import LearnerConfig
from palestra.training.model import ModelConfig

__all__ = [
    "Anneal",
    "EngineSettings",
    "EvaluationSettings",
    "PlaySettings",
    "PromptSettings",
    "TrainConfig",
    "Variant",
    "WarmStart",
]

_COMPARING = ("grpo", "dr_grpo", "rloo", "reinforce_pp_group", "gigpo")
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Anneal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coefficient that goes linearly from ``start`` to ``stop`` over ``steps`` steps, and stays there."""

    start: float
    stop: float = 0.0
    steps: _Positive = 100

    def at(self, step: int) -> float:
        """The coefficient of ``step``."""
        return self.start + (self.stop - self.start) * min(step / self.steps, 1.0)


class PlaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a step's episodes are played."""

    tasks: _Positive = 32
    """Tasks of a step; each is played by one group."""
    group_size: _Positive = 8
    concurrency: _Positive = 256
    deadline: Annotated[float, msgspec.Meta(gt=0.0)] = 600.0
    """Seconds for one episode."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2
    """How often an episode is tried again after a failure of infrastructure."""
    max_tokens: _Positive = 512
    """The most tokens of one turn."""


class PromptSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model is shown."""

    shots: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Episodes of the environment's oracle, on other tasks, shown as chat turns before the model's own."""
    history: Literal["full", "window", "last", "summary"] = "full"
    """Everything; the task and the last ``window`` exchanges; the task and the latest observation; or a summary of the past."""
    window: _Positive = 4
    """Exchanges that ``window`` shows, or after which ``summary`` sums up."""
    family: str | None = None
    """Whose renderer: a family of the ``renderers`` package, or ``template`` for the chat template itself. By default the
    model's name decides."""
    append_only: bool = False
    """Keep thinking in the history even where the template drops it: one segment an episode instead of one a turn."""


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A registered environment with other options, under an id of its own."""

    base: str
    options: dict[str, Any] = {}
    """Keywords of the environment's class, over those of ``base``."""
    move: str = ""
    """How a move is written instead of in a box, such as ``Guess: {}``; see ``wrappers.Reword``."""
    observations: dict[str, str] = {}
    """Regular expressions and what is said instead of an observation that one of them matches."""


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who samples: a copy of the model in this process, or servers."""

    kind: Literal["local", "vllm", "sglang"] = "local"
    urls: tuple[str, ...] = ()
    """Addresses of the servers. They must be able to read the run's folder: new weights reach them through it."""
    batch: _Positive = 64
    """Local: requests that are computed together."""
    rows: _Positive = 128
    """Local: contexts whose keys and values are kept."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Local: the type of the engine's copy of the weights. For servers: of the weights that are handed to them."""
    device: str = "cpu"
    """Local: where it computes."""


class EvaluationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Held-out tasks, played while the run goes on."""

    every: _Positive
    """Steps between two evaluations; there is one after the last step too."""
    envs: tuple[str, ...] = ()
    """Ids or patterns; by default the environments of the run."""
    tasks: _Positive = 100
    """Of each environment: the same ones every time, drawn apart from those that are trained on."""
    temperature: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """0 takes the likeliest token."""


class WarmStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Supervised learning before the first step. Its result is kept in the run's folder as a model of its own."""

    teacher: Literal["oracle", "random", "varied"] = "oracle"
    """Who is imitated: the environment's perfect player, a legal random one, or one that also seldom repeats a move."""
    episodes: _Positive = 512
    epochs: _Positive = 4
    minibatches: _Positive = 8
    """Updates an epoch."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 1e-3


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole run."""

    model: ModelConfig
    envs: dict[str, Annotated[float, msgspec.Meta(gt=0.0)]]
    """Environment ids, and how often each is played in proportion to the others."""
    steps: _Positive
    variants: dict[str, Variant] = {}
    """Environments with other options, by the id under which ``envs`` names them."""
    seed: int = 0
    """From which every random choice of the run is derived."""
    play: PlaySettings = PlaySettings()
    prompt: PromptSettings = PromptSettings()
    engine: EngineSettings = EngineSettings()
    horizon: HorizonConfig | None = None
    """Turns an episode may have. Without it, what the environments allow."""
    warm_start: WarmStart | None = None
    advantage: AdvantageConfig = AdvantageConfig()
    partial: PartialGroups = PartialGroups()
    learner: LearnerConfig = LearnerConfig()
    epochs: _Positive = 1
    """How often a step's batch is gone through."""
    minibatches: _Positive = 1
    """Updates an epoch."""
    staleness: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many versions the oldest token of an episode may lag behind the weights that learn from it. 0 is synchronous."""
    entropy: Anneal | None = None
    """Replaces ``learner.loss.entropy_coefficient``, step by step."""
    checkpoint_every: _Positive = 20
    keep: Annotated[int, msgspec.Meta(ge=2)] = 2
    """How many checkpoints are kept."""
    evaluation: EvaluationSettings | None = None
    """Without it nothing is evaluated."""
    samples: Annotated[int, msgspec.Meta(ge=0)] = 2
    """Groups of every step whose trajectories are written to disk."""

    def __post_init__(self) -> None:
        if not self.envs:
            raise UsageError("there is no environment to play: name at least one in [envs]")
        if self.engine.kind != "local" and not self.engine.urls:
            raise UsageError(f'engine.kind = "{self.engine.kind}" needs the servers\' addresses: engine.urls = ["http://…"]')
        if self.engine.kind == "local" and self.engine.urls:
            raise UsageError('engine.urls are for servers: say engine.kind = "vllm" or "sglang" as well')
        if self.advantage.method.startswith("ppo") and not self.model.critic:
            raise UsageError(f'advantage.method = "{self.advantage.method}" needs a critic: model.critic = true')
        if self.advantage.method in _COMPARING and self.play.group_size < 2:
            raise UsageError(f'advantage.method = "{self.advantage.method}" compares members of a group: play.group_size >= 2')

    @property
    def needs_reference(self) -> bool:
        """Whether there is a KL anywhere."""
        return bool(self.advantage.kl_in_reward or self.learner.loss.kl_coefficient)
