"""What a training run is made of: one TOML file, overridden by dotted names, resolved into frozen structs.

    palestra train recipe.toml learner.learning_rate=1e-5 advantage.method=grpo

Each part's configuration stands beside its owner; here they are put together. The resolved configuration is saved beside the
run, so that what was run can be read back.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from palestra.errors import UsageError
from palestra.training.advantage import AdvantageConfig
from palestra.training.groups import PartialGroups
from palestra.training.horizon import HorizonConfig
from palestra.training.learner import LearnerConfig
from palestra.training.model import ModelConfig

__all__ = ["Anneal", "EngineSettings", "PlaySettings", "TrainConfig", "WarmStart", "load_config"]

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


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine in this process."""

    batch: _Positive = 64
    """Requests that are computed together."""
    rows: _Positive = 128
    """Contexts whose keys and values are kept."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The type of the engine's copy of the weights."""


class WarmStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Supervised learning before the first step. Its result is kept in the run's folder as a model of its own."""

    teacher: Literal["oracle", "random"] = "oracle"
    """Who is imitated: the environment's perfect player, or a legal random one."""
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
    seed: int = 0
    """From which every random choice of the run is derived."""
    play: PlaySettings = PlaySettings()
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
    evaluate_every: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Steps between two evaluations; 0 for none."""
    samples: Annotated[int, msgspec.Meta(ge=0)] = 2
    """Groups of every step whose trajectories are written to disk."""

    @property
    def needs_reference(self) -> bool:
        """Whether there is a KL anywhere."""
        return bool(self.advantage.kl_in_reward or self.learner.loss.kl_coefficient)


def load_config(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration in ``path`` with ``overrides`` such as ``learner.learning_rate=1e-5`` put over it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not a recipe: {error}") from None
    for override in overrides:
        _override(data, override)
    try:
        return msgspec.convert(data, TrainConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None


def _override(data: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise UsageError(f'an override looks like learner.learning_rate=1e-5, got "{override}"')
    *parents, last = name.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise UsageError(f'"{override}": {parent} is a value, not a table')
    data[last] = _value(text)


def _value(text: str) -> Any:
    """``text`` as TOML reads it; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
