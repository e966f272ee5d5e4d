"""The configuration of a training run: frozen structs, read from one TOML file (a recipe).

Each part's configuration is defined beside its owner; this module puts them together. ``recipe`` reads the file and applies
overrides such as ``learner.learning_rate=1e-5``. The run folder keeps the resolved configuration in ``config.json``, and a
resumed run reads it back. Every bound is checked when the recipe is read.

A field of type ``Hook`` names a part that a user may replace. It holds the short name of a built-in, ``module:name``, or a
table ``{use = "module:name", any_keyword = 1}``. Reading a configuration imports nothing; ``palestra.training.parts`` does.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from palestra.errors import UsageError
from palestra.foundation.references import Hook, Role, parse_hook
from palestra.policies import strategy
from palestra.training.algorithms.advantage import AdvantageConfig
from palestra.training.algorithms.entropy import Anneal, EntropyTarget
from palestra.training.algorithms.groups import PartialGroups
from palestra.training.algorithms.horizon import HorizonConfig
from palestra.training.algorithms.shaping import Cut, Overlong, Shaping, overlong_penalty
from palestra.training.difficulty import DIFFICULTY
from palestra.training.learner.learner import LearnerConfig
from palestra.training.learner.model import ModelConfig
from palestra.training.opponents import OpponentSettings
from palestra.training.placement import Launch, check_collective, check_devices, server_devices
from palestra.training.teaching import TeacherSettings
from palestra.wrappers import lending

__all__ = [
    "ENGINE",
    "GRADER",
    "GROUP_REWARD",
    "HISTORY",
    "POLICY",
    "SERVERS",
    "TOOL",
    "TRANSFER",
    "WRAPPER",
    "WRITER",
    "AgentSettings",
    "Anneal",
    "EngineSettings",
    "EntropyTarget",
    "EvaluationSettings",
    "PlaySettings",
    "PromptSettings",
    "TrainConfig",
    "Variant",
    "WarmStart",
]

_COMPARING = ("grpo", "dr_grpo", "rloo", "reinforce_pp_group", "gigpo")
_Positive = Annotated[int, msgspec.Meta(ge=1)]

# The roles that a hook may fill, beside those of ``advantage``, ``loss`` and ``horizon``. The built-ins are references, so that
# reading a configuration imports none of them.
ENGINE = Role(
    "engine.kind",
    ("setup",),
    {name: f"palestra.training.engines:{name}_engine" for name in ("local", "vllm", "sglang")},
    factory=True,
)
TRANSFER = Role(
    "engine.transfer",
    ("setup",),
    {name: f"palestra.training.engines:{name}_transfer" for name in ("folder", "lora", "collective")},
    factory=True,
)
HISTORY = replace(strategy.HISTORY, key="prompt.history")
POLICY = replace(
    strategy.STRATEGY,
    key="policy",
    arguments=("sampled",),
    builtins={
        "sampled": "palestra.training.parts:sampled",
        **strategy.STRATEGY.builtins,
        "agent": "palestra.training.parts:agent",
    },
)
WRAPPER = replace(lending.WRAPPER, key="variants.ID.wrappers")
TOOL = replace(lending.TOOL, key="variants.ID.tools")
GRADER = Role("play.grader", ("trajectory",))
GROUP_REWARD = Role("play.group_reward", ("group",))
_TEACHERS = {name: f"palestra.training.imitation:{name}_teacher" for name in ("oracle", "random", "varied")}
DEMONSTRATOR = Role("warm_start.teacher", (), _TEACHERS, factory=True)
WRITER = Role(
    "writers",
    ("folder", "config"),
    {
        "tensorboard": "palestra.training.writers:TensorBoardWriter",
        "wandb": "palestra.training.writers:WandbWriter",
        "prometheus": "palestra.training.exposing:PrometheusWriter",
    },
    factory=True,
)
SERVERS = ("vllm", "sglang")


class PlaySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the episodes of a step are played and rewarded."""

    tasks: _Positive = 32
    """Tasks per step, over all environments. One group plays each task."""
    group_size: _Positive = 8
    """Episodes per task."""
    concurrency: _Positive = 256
    """Episodes at the same time, over all groups that are being played."""
    difficulty: Hook | None = None
    """How often tasks are drawn, by how often the model solves them. ``pools``: tasks that are nearly always or never solved
    are drawn less often. Or your own as ``module:name``: a function of a list of ``SolveRate`` that returns a weight for each.
    Tasks are the rows of finite environments, and otherwise the environments themselves. By default all are alike."""
    deadline: Annotated[float, msgspec.Meta(gt=0.0)] = 600.0
    """Seconds per episode."""
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2
    """How often an episode is repeated after an infrastructure failure."""
    max_tokens: _Positive = 512
    """The most tokens per turn."""
    cut: Cut = "as_invalid"
    """The reward of a turn that was cut, because it reached ``max_tokens`` or the end of the context. ``as_invalid``: what the
    environment pays for an empty action. ``mask``: none, and the turn is left out of training. Or a number."""
    overlong: Overlong | None = None
    """DAPO's soft penalty on turns that come close to ``max_tokens``."""
    grader: Hook | None = None
    """Scores every finished episode again: ``module:name``, called with the trajectory. Its score replaces the rewards."""
    group_reward: Hook | None = None
    """Compares the episodes of a group, for example with a judge: ``module:name``, called with the ``TrajectoryGroup``. It
    returns one number per member, which is added to the reward of the member's last turn."""

    def __post_init__(self) -> None:
        if self.overlong is not None:
            overlong_penalty(
                0, self.max_tokens, self.overlong.tokens(self.max_tokens)
            )  # raises if the buffer is longer than a turn
        for role, value in ((GRADER, self.grader), (GROUP_REWARD, self.group_reward), (DIFFICULTY, self.difficulty)):
            if value is not None:
                role.check(value)

    @property
    def shaping(self) -> Shaping:
        """How rewards are shaped before advantages are computed."""
        return Shaping(self.cut, self.overlong, self.max_tokens)


class PromptSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model sees."""

    shots: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Number of shots: episodes of the oracle on other tasks, which the prompt shows as chat turns before the model's own
    episode."""
    history: Hook = "full"
    """``full``: every message. ``{use = "window", turns = 4}``: the task and the last 4 exchanges. ``last``: the task and the
    latest observation. ``{use = "summary", turns = 4}``: the model summarizes the past after every 4 exchanges. Or your own as
    ``module:name``."""
    family: str | None = None
    """The renderer: a family of the ``renderers`` package, or ``template`` for the chat template itself. By default the model's
    name decides."""
    append_only: bool = False
    """Keep reasoning in the history even where the template drops it. With the full history, an episode is then one
    segment."""

    def __post_init__(self) -> None:
        HISTORY.check(self.history)


class Variant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment with keyword arguments, wrappers or tools, under an id of its own."""

    env: Hook
    """The environment: an id, ``module:Class``, or a table ``{use = "module:Class", any_keyword = 1}``."""
    wrappers: tuple[Hook, ...] = ()
    """Wrappers, innermost first: ``Attempts``, ``Reword``, ``TurnLimit``, ``TokenLimit``, ``KeepHistory``, or your own as
    ``module:name``. With ``Attempts``, each attempt has the turns of the environment's limit."""
    tools: tuple[Hook, ...] = ()
    """Tools that the agent may call: ``python``, ``search``, or your own as ``module:name``. They are added last,
    around the wrappers."""

    def __post_init__(self) -> None:
        parse_hook("variants.ID.env", self.env)
        for role, values in ((WRAPPER, self.wrappers), (TOOL, self.tools)):
            for value in values:
                role.check(value)


class EngineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that samples tokens."""

    kind: Hook = "local"
    """``local``: a copy of the model in this process. ``vllm`` or ``sglang``: servers. Or your own engine as
    ``module:name``."""
    urls: tuple[str, ...] = ()
    """Addresses of the servers. The servers must be able to read the run folder: new weights reach them through it."""
    launch: Launch | None = None
    """Servers that the run starts itself, instead of ``urls``."""
    transfer: Hook = "folder"
    """How new weights reach servers. ``folder``: they load a model folder with all weights. ``lora``: they load the adapters
    alone, which needs ``model.lora`` and servers that were started with ``--enable-lora``. Servers at ``urls`` first load the
    model of the run, unless it is ``{use = "lora", load_base = false}``. ``collective``: the learner broadcasts all weights in
    bfloat16 to the GPUs of the servers, without files. Or your own as ``module:name``."""
    sleep: bool = False
    """Whether vLLM servers give the memory of their GPUs to the learner while it works. Servers and learner can then share
    GPUs. Needs ``staleness = 0``, and servers that were started with ``--enable-sleep-mode``."""
    batch: _Positive = 64
    """Local: requests that are computed together."""
    rows: _Positive = 128
    """Local: contexts whose keys and values are cached."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The data type of the engine's weights."""
    device: str | None = None
    """Local: the device of the engine. By default that of the learner (``model.device``)."""

    def __post_init__(self) -> None:
        ENGINE.check(self.kind)
        TRANSFER.check(self.transfer)
        if self.name == "local" and self.transfer_name != "folder":
            raise UsageError('engine.transfer is for servers: set engine.kind = "vllm" or "sglang" as well')
        check_collective(self.transfer_name, self.dtype, sleep=self.sleep)
        if self.sleep and self.name in ("local", "sglang"):
            raise UsageError('engine.sleep is for vLLM servers: set engine.kind = "vllm" as well')
        if self.name in SERVERS and not self.urls and self.launch is None:
            raise UsageError(
                f'engine.kind = "{self.name}" needs servers: name their addresses, engine.urls = ["http://…"], or add the '
                "table [engine.launch] to have the run start them"
            )
        if self.name == "local" and self.urls:
            raise UsageError('engine.urls is for servers: set engine.kind = "vllm" or "sglang" as well')
        if self.launch is not None and (self.urls or self.name not in SERVERS):
            raise UsageError('[engine.launch] starts servers: set engine.kind = "vllm" or "sglang", and leave engine.urls out')

    @property
    def name(self) -> str:
        """What ``kind`` uses: ``local``, ``vllm``, ``sglang`` or ``module:name``."""
        return parse_hook("engine.kind", self.kind)[0]

    @property
    def transfer_name(self) -> str:
        """What ``transfer`` uses: ``folder``, ``lora``, ``collective`` or ``module:name``."""
        return parse_hook("engine.transfer", self.transfer)[0]


class EvaluationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Evaluation on held-out tasks during the run."""

    every: _Positive
    """Steps between two evaluations. There is always one after the last step."""
    envs: tuple[str, ...] = ()
    """Ids or patterns. By default the environments of the run."""
    n: _Positive = 100
    """Tasks per environment. They are the same in every evaluation. Training steps and the warm start never draw
    them. If the tasks are rows of a data file or data set, the evaluated rows are left out of training."""
    temperature: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """The sampling temperature; 0 takes the likeliest token."""
    at_start: bool = True
    """Whether the model is also evaluated before the first step."""
    metric: Literal["score", "success"] = "score"
    """The number by which ``keep_best`` and ``patience`` compare evaluations."""
    keep_best: bool = False
    """Whether the step with the best evaluation writes a checkpoint that is never removed. ``palestra model export --best``
    takes it."""
    patience: _Positive | None = None
    """The run ends early after this many evaluations in a row that are not better than the best one before them."""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An agent of another framework plays the episodes; its calls to the model are trained."""

    program: str
    """The agent: ``module:function``, called once per episode. See ``palestra.agents.Program``."""
    auxiliary: bool = False
    """Whether asides such as titles and summaries are trained as well."""
    calls: _Positive | None = None
    """The most calls per episode; by default there is no limit."""
    tokens: _Positive | None = None
    """The most sampled tokens per episode; by default there is no limit."""
    grace: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0
    """Seconds that the agent has to return after the episode has ended."""
    variables: tuple[str, ...] = ()
    """Environment variables that the worker process of a plain function gets."""


class WarmStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Supervised learning before the first step. The run folder keeps the result as a model folder."""

    teacher: Hook = "oracle"
    """The policy to imitate: ``oracle``, ``random``, ``varied`` (seldom repeats a move), or your own as ``module:name``."""
    episodes: _Positive = 512
    """Episodes that the teacher plays."""
    epochs: _Positive = 4
    """Passes over these episodes."""
    minibatches: _Positive = 8
    """Updates per epoch."""
    learning_rate: Annotated[float, msgspec.Meta(gt=0.0)] = 1e-3

    def __post_init__(self) -> None:
        DEMONSTRATOR.check(self.teacher)


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
    def server_devices(self) -> list[str | None]:
        """``CUDA_VISIBLE_DEVICES`` of each server that the run starts; ``None`` leaves it as it is."""
        launch = self.engine.launch
        return (
            []
            if launch is None
            else server_devices(self.model.device, launch.replicas, launch.devices, shared=self.engine.sleep)
        )

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
