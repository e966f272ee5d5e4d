"""Options of play: tasks, prompts, wrapped environments, agents, opponents, teachers, warm starts, evaluations.

A role names the parts that a user may replace at one key, and the short names of the built-in ones. The built-ins are
references, so that reading a recipe imports none of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import msgspec

from palestra.errors import UsageError
from palestra.foundation.references import Hook, Role, parse_hook
from palestra.recipes.algorithms import Cut, Overlong, Shaping

__all__ = [
    "DEMONSTRATOR",
    "DIFFICULTY",
    "GRADER",
    "GROUP_REWARD",
    "HISTORY",
    "OPPONENT",
    "POLICY",
    "PROMPT_HISTORY",
    "STRATEGY",
    "TEACHER",
    "TOOL",
    "VARIANT_TOOL",
    "VARIANT_WRAPPER",
    "WRAPPER",
    "WRITER",
    "AgentSettings",
    "EvaluationSettings",
    "OpponentSettings",
    "PlaySettings",
    "PromptSettings",
    "TeacherSettings",
    "Variant",
    "WarmStart",
]

STRATEGY = Role(
    "strategy",
    ("policy",),
    {
        "react": "palestra.policies.thinking:ReAct",
        "plan": "palestra.policies.thinking:Plan",
        "scratchpad": "palestra.policies.remembering:Scratchpad",
        "reflect": "palestra.policies.remembering:Reflect",
        "best_of": "palestra.policies.choosing:BestOf",
        "tree": "palestra.policies.searching:TreeSearch",
    },
    factory=True,
)
POLICY = replace(
    STRATEGY,
    key="policy",
    arguments=("sampled",),
    builtins={
        "sampled": "palestra.training.parts:sampled",
        **STRATEGY.builtins,
        "agent": "palestra.training.parts:agent",
    },
)
HISTORY = Role(
    "history",
    (),
    {
        "full": "palestra.policies.history:FullHistory",
        "window": "palestra.policies.history:Window",
        "last": "palestra.policies.history:LastObservation",
        "summary": "palestra.policies.history:Summary",
    },
    factory=True,
)
PROMPT_HISTORY = replace(HISTORY, key="prompt.history")
WRAPPER = Role(
    "wrapper",
    ("env",),
    {name: f"palestra.wrappers:{name}" for name in ("Attempts", "KeepHistory", "Reword", "TokenLimit", "TurnLimit")},
    factory=True,
)
TOOL = Role(
    "tool", (), {"python": "palestra.tools.python:PythonTool", "search": "palestra.wrappers.lending:search_tool"}, factory=True
)
VARIANT_WRAPPER = replace(WRAPPER, key="variants.ID.wrappers")
VARIANT_TOOL = replace(TOOL, key="variants.ID.tools")
GRADER = Role("play.grader", ("trajectory",))
GROUP_REWARD = Role("play.group_reward", ("group",))
DIFFICULTY = Role("play.difficulty", ("rates",), {"pools": "palestra.training.difficulty:pools"})
_TEACHERS = {name: f"palestra.training.imitation:{name}_teacher" for name in ("oracle", "random", "varied")}
DEMONSTRATOR = Role("warm_start.teacher", (), _TEACHERS, factory=True)
OPPONENT = Role("opponent.kind", ("setup",), {"past": "palestra.training.opponent_setup:past_opponent"}, factory=True)
TEACHER = Role(
    "teacher.kind",
    ("setup",),
    {name: f"palestra.training.teaching:{name}_teacher" for name in ("local", "vllm")},
    factory=True,
)
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
_Positive = Annotated[int, msgspec.Meta(ge=1)]


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
            self.overlong.tokens(self.max_tokens)  # raises if the buffer is longer than a turn
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
        PROMPT_HISTORY.check(self.history)


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
        for role, values in ((VARIANT_WRAPPER, self.wrappers), (VARIANT_TOOL, self.tools)):
            for value in values:
                role.check(value)


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


class OpponentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An opponent for the model, in games with several players."""

    players: Annotated[tuple[str, ...], msgspec.Meta(min_length=2)]
    """The names of the game's players. In a task with an opponent the model plays one of them, drawn by the run's seed."""
    kind: Hook = "past"
    """``past``: the model with earlier weights. Or your own as ``module:name``: a function of an ``OpponentSetup`` that returns
    a policy. If the policy has an async method ``close``, the run calls it at its end."""
    share: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5
    """The share of tasks with an opponent. In the others the model plays all players and learns from each."""
    every: Annotated[int, msgspec.Meta(ge=1)] = 20
    """For ``past``: after this many steps the weights are kept, and another opponent is drawn."""
    pool: Annotated[int, msgspec.Meta(ge=1)] = 5
    """For ``past``: from how many of the latest kept weights an opponent is drawn."""
    urls: tuple[str, ...] = ()
    """For ``past``: addresses of servers that sample the opponent, if ``engine.kind`` is ``vllm`` or ``sglang``. They load the
    kept weights from the run folder. The servers of the model cannot sample it: they have other weights."""

    def __post_init__(self) -> None:
        OPPONENT.check(self.kind)
        if len(set(self.players)) != len(self.players):
            raise UsageError("opponent.players names a player twice")
        past = [field for field in msgspec.structs.fields(type(self)) if field.name in ("every", "pool", "urls")]
        for field in past if self.name != "past" else ():
            if getattr(self, field.name) != field.default:
                raise UsageError(f'opponent.{field.name} is for opponent.kind = "past": leave it out')

    def check(self, engine: str, urls: Sequence[str], *, has_agent: bool) -> None:
        """Raise ``UsageError`` if there can be no such opponent beside the run's ``engine``, whose servers are ``urls``."""
        if self.name != "past":
            return
        if has_agent:
            raise UsageError('opponent.kind = "past" cannot play as an agent: name a policy of your own, or leave [agent] out')
        if engine not in ("local", "vllm", "sglang"):
            raise UsageError('opponent.kind = "past" needs engine.kind = "local", "vllm" or "sglang"')
        if engine == "local" and self.urls:
            raise UsageError('opponent.urls is for servers: set engine.kind = "vllm" or "sglang" as well')
        if engine != "local" and not self.urls:
            raise UsageError("the servers of the model cannot hold earlier weights as well: name others in opponent.urls")
        if same := {url.rstrip("/") for url in urls} & {url.rstrip("/") for url in self.urls}:
            raise UsageError(f"{min(same)} is in engine.urls and in opponent.urls: a server can hold one version only")

    def kept(self, back: int) -> int:
        """For ``past``: the most versions of the weights in the run folder. A resumed run goes back by at most ``back`` steps,
        and needs the versions that were there then.
        """
        return self.pool + -(-back // self.every) + 1

    @property
    def name(self) -> str:
        """What ``kind`` uses: ``past`` or ``module:name``."""
        return parse_hook(OPPONENT.key, self.kind)[0]


class TeacherSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A teacher for on-policy distillation."""

    kind: Hook = "local"
    """``local``: a frozen model beside the learner's. ``vllm``: servers at ``urls``. Or your own as ``module:name``."""
    path: str = ""
    """Local: the model of the teacher, as in ``model.path``."""
    urls: tuple[str, ...] = ()
    """Addresses of vLLM servers that hold the teacher. Their context must be longer than that of the engine."""
    weight: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """The weight of log π_teacher − log π in the advantage of a token."""
    task: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """The weight of the advantage that ``advantage.method`` computes from rewards. 0 ignores the rewards."""
    largest: Annotated[float, msgspec.Meta(gt=0.0)] = 10.0
    """The largest distance between the two log-probabilities of a token, in nats. A larger one counts as this."""

    def __post_init__(self) -> None:
        TEACHER.check(self.kind)
        if self.name == "local" and not self.path:
            raise UsageError('teacher.kind = "local" needs a model: set teacher.path')
        if self.name == "vllm" and not self.urls:
            raise UsageError('teacher.kind = "vllm" needs servers: set teacher.urls = ["http://…"]')
        if self.name == "local" and self.urls:
            raise UsageError('teacher.urls is for servers: set teacher.kind = "vllm" as well')
        if self.name == "vllm" and self.path:
            raise UsageError('teacher.path is for a local teacher: leave it out, or set teacher.kind = "local"')
        if not self.weight and not self.task:
            raise UsageError("teacher.weight and teacher.task are both 0, so nothing would be learned: set one of them above 0")

    @property
    def name(self) -> str:
        """What ``kind`` uses: ``local``, ``vllm`` or ``module:name``."""
        return parse_hook("teacher.kind", self.kind)[0]


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
