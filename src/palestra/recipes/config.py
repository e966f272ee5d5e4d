"""``TrainConfig``: the keys of a training run.

The modules of this folder hold the options of the run's parts, one file per owner; the owners import their own options from
here. ``reading`` reads a recipe and applies overrides such as ``learner.learning_rate=1e-5``. The run folder keeps the
resolved configuration in ``config.json``, and a resumed run reads it back. Every bound is checked when the recipe is read.

A field of type ``Hook`` names a part that a user may replace. It holds the short name of a built-in, ``module:name``, or a
table ``{use = "module:name", any_keyword = 1}``. Reading a configuration imports nothing; ``palestra.training.parts`` does.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from palestra.errors import UsageError
from palestra.foundation.references import Hook, parse_hook
from palestra.recipes.algorithms import (
    AdvantageConfig,
    Anneal,
    EntropyTarget,
    HorizonConfig,
    PartialGroups,
)
from palestra.recipes.engine import EngineSettings, check_devices
from palestra.recipes.learner import LearnerConfig
from palestra.recipes.model import ModelConfig
from palestra.recipes.play import (
    POLICY,
    WRITER,
    AgentSettings,
    EvaluationSettings,
    OpponentSettings,
    PlaySettings,
    PromptSettings,
    TeacherSettings,
    Variant,
    WarmStart,
)

__all__ = ["TrainConfig"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_COMPARING = ("grpo", "dr_grpo", "rloo", "reinforce_pp_group", "gigpo")


class TrainConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a run."""

    model: ModelConfig
    envs: dict[str, Annotated[float, msgspec.Meta(gt=0.0)]]
    """Environment ids and their weights: how often a step draws each, relative to the others."""
    steps: _Positive
    """Steps of the run. Each makes one version of the weights."""
    preset: str | None = None
    """A paper's settings as defaults of the other keys: ``grpo``, ``dr_grpo``, ``dapo``, ``gspo``, ``cispo`` or ``gem``; or
    your own TOML file, relative to the recipe. Every key that the recipe sets itself wins."""
    variants: dict[str, Variant] = {}
    """Environments with keyword arguments, wrappers or tools. The key of each table is a new id, which ``envs`` can use."""
    seed: int = 0
    """The seed of every random choice of the run."""
    play: PlaySettings = PlaySettings()
    prompt: PromptSettings = PromptSettings()
    policy: Hook = "sampled"
    """``sampled``: the model answers each turn with one sample. Or a strategy around it: ``react``, ``plan``, ``scratchpad``,
    ``reflect``, ``best_of`` or ``tree``, with keywords as in ``{use = "react", keep = false}``. Or your own policy as
    ``module:name``: a function or class that gets the policy ``sampled`` and returns the policy to play with."""
    agent: AgentSettings | None = None
    """An agent of another framework plays instead of ``policy``."""
    engine: EngineSettings = EngineSettings()
    horizon: HorizonConfig | None = None
    """Largest number of turns per episode; by default the limits of the environments."""
    warm_start: WarmStart | None = None
    advantage: AdvantageConfig = AdvantageConfig()
    teacher: TeacherSettings | None = None
    """A teacher whose log-probabilities are part of the advantages: on-policy distillation."""
    opponent: OpponentSettings | None = None
    """An opponent in games with several players. By default the model plays all players and learns from each."""
    partial: PartialGroups = PartialGroups()
    learner: LearnerConfig = LearnerConfig()
    epochs: _Positive = 1
    """Passes over the batch of a step."""
    minibatches: _Positive = 1
    """Updates per epoch."""
    staleness: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The largest number of weight versions between sampling a token and learning from it. 0 is synchronous training. With
    more, a step takes the groups that have finished. It waits for a group only if that group would become too old."""
    ahead: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """For how many further steps groups are started while the learner works. It is also about the mean age of what a step
    learns from, in versions. By default a quarter of ``staleness``, rounded up. If it equals ``staleness``, every step takes
    its groups in order and waits for the slowest."""
    entropy: Anneal | None = None
    """A schedule of the entropy coefficient. It replaces ``learner.loss.entropy_coefficient``."""
    entropy_target: EntropyTarget | None = None
    """Adapts the entropy coefficient, so that the entropy stays near a target. It replaces ``entropy``."""
    target_kl: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """The step ends early, before its remaining updates, once KL(π_old‖π) is above this number of nats per token."""
    checkpoint_every: _Positive = 20
    """Steps between two checkpoints. The last step always writes one."""
    settle: bool = False
    """Whether a checkpoint waits until no group is being played. Then a run that resumes after a crash repeats no
    episode. Otherwise the groups that were being played start again, with the weights of the checkpoint. The checkpoint after
    Ctrl-C never waits."""
    keep: Annotated[int, msgspec.Meta(ge=2)] = 2
    """How many checkpoints the folder keeps."""
    evaluation: EvaluationSettings | None = None
    """Without this table nothing is evaluated."""
    samples: Annotated[int, msgspec.Meta(ge=0)] = 2
    """Groups per step whose trajectories are written to the folder."""
    writers: tuple[Hook, ...] = ()
    """Where else metrics go: ``tensorboard``, ``{use = "wandb", project = "mine"}``, ``prometheus``, or your own as
    ``module:name``."""

    def __post_init__(self) -> None:
        for key in _unwritable(msgspec.to_builtins(self)):
            raise UsageError(f"{key} must be a finite number: config.json cannot hold inf or nan")
        POLICY.check(self.policy)
        if self.agent is not None and self.policy != "sampled":
            raise UsageError("policy and [agent] both say what plays the episodes: leave one of them out")
        for writer in self.writers:
            WRITER.check(writer)
        if self.entropy is not None and self.entropy_target is not None:
            raise UsageError("entropy and entropy_target both set the entropy coefficient: leave one of them out")
        if self.partial.refill and self.partial.keep_constant:
            raise UsageError("partial.refill replaces groups that are dropped: set partial.keep_constant = false as well")
        if self.engine.transfer_name == "lora" and self.model.lora is None:
            raise UsageError('engine.transfer = "lora" sends adapters: train some, with the table [model.lora]')
        if self.partial.refill and self.play.difficulty is not None:
            raise UsageError("play.difficulty does not see the tasks that partial.refill replaces: set partial.refill = 0")
        if self.engine.sleep and self.staleness:
            raise UsageError("engine.sleep stops all episodes while the learner works: set staleness = 0")
        if self.ahead is not None and self.ahead > self.staleness:
            raise UsageError(
                f"ahead = {self.ahead} starts groups that staleness = {self.staleness} forbids to use: set ahead <= staleness"
            )
        self._check_method()
        self._check_teacher()
        self._check_opponent()

    def _check_method(self) -> None:
        method = parse_hook("advantage.method", self.advantage.method)[0]
        if not self.envs:
            raise UsageError("there is no environment to play: name at least one in [envs]")
        if method.startswith("ppo_") and not self.model.critic:
            raise UsageError(f'advantage.method = "{method}" needs a critic: model.critic = true')
        if method in _COMPARING and self.play.group_size < 2:
            raise UsageError(f'advantage.method = "{method}" compares the members of a group: play.group_size >= 2')

    def _check_teacher(self) -> None:
        if self.teacher is None:
            return
        if self.teacher.name == "vllm" and self.learner.temperature != 1.0:
            raise UsageError('servers score at temperature 1: set learner.temperature = 1 or teacher.kind = "local"')
        needing = {
            "partial.keep_constant = false": not self.partial.keep_constant,
            "advantage.kl_in_reward": bool(self.advantage.kl_in_reward),
            "model.critic": self.model.critic,
        }
        if not self.teacher.task and (wrong := [key for key, is_set in needing.items() if is_set]):
            raise UsageError(
                f"{wrong[0]} is about rewards, which teacher.task = 0 ignores: set teacher.task above 0, or leave it out"
            )

    def _check_opponent(self) -> None:
        if self.opponent is not None:
            self.opponent.check(self.engine.name, self.engine.urls, has_agent=self.agent is not None)

    @property
    def player(self) -> Hook:
        """What plays the episodes: ``policy``, or the agent."""
        return self.policy if self.agent is None else {"use": "agent", **msgspec.to_builtins(self.agent)}

    @property
    def steps_ahead(self) -> int:
        """For how many further steps groups are started."""
        return -(-self.staleness // 4) if self.ahead is None else self.ahead

    def check_devices(self) -> None:
        """Raise ``UsageError`` if a server would share the GPU of the learner, as this process numbers its GPUs.

        A run checks it when it starts. A saved configuration can be read anywhere, with other GPUs or none.
        """
        if self.engine.launch is not None and not self.engine.sleep:
            check_devices(self.model.device, self.engine.launch.devices)

    @property
    def engine_device(self) -> str:
        """The device of a local engine."""
        return self.engine.device or self.model.device

    @property
    def measures_first(self) -> bool:
        """Whether a step measures its batch before it learns from it.

        Several updates per step need the log-probabilities before the first one, and advantages may need values or a KL.
        """
        several = self.epochs * self.minibatches > 1
        return several or self.model.critic or bool(self.advantage.kl_in_reward) or self.teacher is not None

    @property
    def needs_reference(self) -> bool:
        """Whether the run computes a KL to the initial policy."""
        return bool(self.advantage.kl_in_reward or self.learner.loss.kl_coefficient)


def _unwritable(value: Any, key: str = "") -> Iterator[str]:
    """Yield the dotted keys of the numbers in ``value`` that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for name, part in parts:
        yield from _unwritable(part, f"{key}.{name}" if key else str(name))
