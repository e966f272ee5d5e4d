"""The contracts. Everything else in Palestra depends on this file.

An action is the text that a model wrote. An observation is text, or text and images. An author writes an ``Env`` with plain
methods, or an ``AsyncEnv`` with the same methods as ``async def``. Episodes run on the async side, and so do wrappers. A
``Policy`` acts, and a ``Tool`` is something that the agent may call. A policy that samples from a local model consists of a
``Renderer`` (messages to token ids) and an ``Engine`` (token ids to token ids).

The code that runs an episode gives a meaning to some keys of ``info``: ``Info`` lists them. All others belong to the author.

In an episode with several players, ``info["player"]`` names the player who acts next; only this player sees the observation.
``info["rewards"]`` pays players other than the acting one. Every player has its own conversation and trajectory, and may have
its own policy.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypedDict

import msgspec
import numpy as np

from palestra.errors import NotBegun, PolicyError, Unsupported
from palestra.foundation.encoding import Ints
from palestra.foundation.seeding import derive, derive_seed, fresh_seed
from palestra.trajectory import Completion, Content, Failure, Finish, Message, Task, Tokens, ToolResult

__all__ = [
    "AsyncEnv",
    "Conversation",
    "Engine",
    "EngineSession",
    "Env",
    "EpisodeTool",
    "Generation",
    "Info",
    "Policy",
    "Renderer",
    "Reply",
    "Sampling",
    "Step",
    "Tool",
]


class Step(NamedTuple):
    """The result of an action. It unpacks like Gymnasium's five-tuple."""

    observation: Content
    reward: float
    terminated: bool
    """The task itself ended the episode, so its future value is zero."""
    truncated: bool
    """A limit cut the episode short. Never true together with ``terminated``."""
    info: dict[str, Any]


class Info(TypedDict, total=False):
    """The keys of ``info`` that have a meaning to Palestra's own code. An author may add any other key.

    ``Env.reset`` and ``Step`` say ``dict[str, Any]``, because a stranger's ``info`` may hold anything: it is checked where it
    is read.
    """

    opening: list[dict[str, str]]
    """In the reset: messages before the first observation, such as ``[{"role": "system", "content": TEXT}]``."""
    max_turns: int
    """In the reset: the episode is truncated after this number of turns."""
    tools: list[dict[str, Any]] | dict[str, Any]
    """A list, in any info: the schemas of the tools that the agent may call from now on. A dictionary, in a step of
    ``UseTools``: the ``calls`` of this action, and the ``totals`` of the episode by outcome."""
    data: dict[str, Any]
    """In the reset: which row of a data set the task shows, as ``split`` and ``index``. Examples shown to the policy leave out
    this row."""
    role: Literal["tool"]
    """In a step: the observation answers tool calls, and becomes a message of the role ``tool`` instead of ``user``."""
    format_error: bool
    """In a step: the environment found no answer in the action. Reports count these turns."""
    success: bool | None
    """On the last step: whether the task was solved. Reports count it."""
    stop_reason: str
    """On a truncated step: ``truncated``, ``turn_limit`` or ``token_limit``. Wrappers that cut an episode set it."""
    metrics: dict[str, float]
    """On the last step: numbers apart from the reward. Reports show their means."""
    player: str
    """In the reset or a step: the player who acts next."""
    rewards: dict[str, float]
    """In a step: the rewards of players besides the acting one. Each is added to that player's latest turn."""
    grader: float
    """On the last step: the reward that a recipe's grader gave to the episode, in place of all others. Training sets it."""
    failure: Failure
    """In a step of ``VectorEnv``: why the environment was replaced."""
    final_observation: Content
    """In a step of ``VectorEnv``: how the previous episode ended. The step's observation begins the next one."""
    final_info: dict[str, Any]
    """In a step of ``VectorEnv``: the info of the last step of the previous episode."""


class _Traits:
    """Declarations of an environment's class, for sync and async classes."""

    blocking: ClassVar[bool] = False
    """Its methods wait or compute for a long time. It then runs in a worker process, which can be killed."""
    variables: ClassVar[tuple[str, ...]] = ()
    """Names of environment variables that its worker process gets, besides common ones such as ``PATH`` and ``LANG``."""
    reusable: ClassVar[bool] = False
    """It is expensive to build. It is then kept in a pool and reset for the next episode."""
    client_params: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``Task.params`` that clients of a server may set. List a key only if every value costs little time and memory."""
    reward_range: ClassVar[tuple[float, float]] = (-float("inf"), float("inf"))
    """Bounds of the reward of one step."""
    score_range: ClassVar[tuple[float, float]] = (-float("inf"), float("inf"))
    """Bounds of the score of an episode, the sum of its rewards. If an evaluation leaves episodes unplayed, its report uses
    them to say where the mean of all episodes must lie."""
    max_turns: int | None
    """The episode is truncated after this number of turns; ``None`` means no limit. A class sets it with ``max_turns = 8``."""
    counts_turns: ClassVar[bool] = False
    """The class truncates its episodes itself at its ``max_turns``, so Palestra does not count."""

    task: Task
    """The task of the current episode. Set by ``reset``."""

    def _begin(self, seed: int | None, task: Task | None) -> None:
        if task is None:
            task = Task(f"{type(self).__module__}:{type(self).__qualname__}", fresh_seed() if seed is None else seed)
        self.task = task
        self._rng: np.random.Generator | None = None
        self._action_rng: np.random.Generator | None = None

    @property
    def rng(self) -> "np.random.Generator":
        """The random generator of the current task. It is made on first use, because some tasks need none.

        Raises:
            NotBegun: ``reset`` has not called ``super().reset(seed=seed, task=task)``.
        """
        try:
            made = self._rng
        except AttributeError:
            raise NotBegun(_not_begun(self)) from None
        if made is None:
            made = self._rng = derive(self.task.seed, self.task.key)
        return made

    @property
    def action_rng(self) -> "np.random.Generator":
        """The generator for ``sample_random_action``. It is not ``rng``, so sampling an action never changes the episode."""
        try:
            made = self._action_rng
        except AttributeError:
            raise NotBegun(_not_begun(self)) from None
        if made is None:
            made = self._action_rng = derive(self.task.seed, "actions", self.task.key)
        return made

    @property
    def floor(self) -> float:
        """The mean score of the best player who never reads the observation. A class sets it with ``floor = 0.5``.

        An adapter or a wrapper has the floor of the environment inside it, unless its class sets another one.
        """
        return 0.0 if self.unwrapped is self else self.unwrapped.floor

    @property
    def ceiling(self) -> float | None:
        """The mean score of the best possible player, if chance or an opponent makes some tasks unsolvable.

        ``None`` if every task can be solved. A class sets it with ``ceiling = 0.5``, and should say how the number was found.
        An adapter or a wrapper has the ceiling of the environment inside it, unless its class sets another one.
        """
        return None if self.unwrapped is self else self.unwrapped.ceiling

    @property
    def unwrapped(self) -> "Env | AsyncEnv":
        """The author's own object, inside all adapters and wrappers."""
        assert isinstance(self, Env | AsyncEnv)
        return self


def _not_begun(env: _Traits) -> str:
    return (
        f"{type(env.unwrapped).__qualname__} has no generator yet: call super().reset(seed=seed, task=task) first in reset(), "
        f"and reset() before anything else"
    )


def _no_random_action(env: _Traits) -> str:
    return (
        f"{type(env.unwrapped).__name__} has no sample_random_action(): write the method, which returns an action drawn from "
        f"self.action_rng"
    )


class Env(_Traits, ABC):
    """An environment with plain methods. Write ``reset`` and ``step``; all other methods are optional.

    Call ``super().reset(seed=seed, task=task)`` first in ``reset``. After that, ``self.task`` and ``self.rng`` are set.

    Example::

        class Parity(palestra.Env):
            def reset(self, *, seed=None, task=None):
                super().reset(seed=seed, task=task)
                self.number = int(self.rng.integers(1000))
                return f"Is {self.number} even or odd?", {}

            def step(self, action):
                right = action == ("odd" if self.number % 2 else "even")
                return palestra.Step("", float(right), True, False, {"success": right})
    """

    @abstractmethod
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start an episode and return its first observation and ``info``.

        Args:
            seed: Start the episode with this seed. Without a seed and a task, the seed is random.
            task: Start the episode of this task. It has a seed of its own, and may name a row or parameters.
        """
        self._begin(seed, task)
        return "", {}

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take an action: any text that a model may write.

        A malformed action is the model's mistake. Answer it with a step, and do not raise an exception.
        """

    def close(self) -> None:
        """Free all resources. Called once, also after a failure."""

    def oracle(self) -> str:
        """Return the action that a perfect player would take now."""
        raise Unsupported(f"{type(self).__name__} has no oracle()")

    def sample_random_action(self) -> str:
        """Return a random well-formed action, drawn from ``self.action_rng``."""
        raise Unsupported(_no_random_action(self))

    def seed_actions(self, seed: int) -> None:
        """Seed the following random actions, so that members of a group take different ones."""
        self._action_rng = derive(seed, "actions")

    def fork(self) -> "Env":
        """Return an independent copy of the running episode."""
        raise Unsupported(f"{type(self).__name__} has no fork()")


class AsyncEnv(_Traits, ABC):
    """An environment with ``async def`` methods: for environments that wait for a network, a browser or a model."""

    @abstractmethod
    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Start an episode and return its first observation and ``info``.

        Args:
            seed: Start the episode with this seed. Without a seed and a task, the seed is random.
            task: Start the episode of this task. It has a seed of its own, and may name a row or parameters.
        """
        self._begin(seed, task)
        return "", {}

    @abstractmethod
    async def step(self, action: str) -> Step:
        """Take an action: any text that a model may write.

        A malformed action is the model's mistake. Answer it with a step, and do not raise an exception.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Free all resources. Called once, also after a failure."""

    async def healthy(self) -> bool:
        """Return whether a pooled environment can play another episode."""
        return True

    async def oracle(self) -> str:
        """Return the action that a perfect player would take now."""
        raise Unsupported(f"{type(self).__name__} has no oracle()")

    async def sample_random_action(self) -> str:
        """Return a random well-formed action, drawn from ``self.action_rng``."""
        raise Unsupported(_no_random_action(self))

    async def seed_actions(self, seed: int) -> None:
        """Seed the following random actions, so that members of a group take different ones."""
        self._action_rng = derive(seed, "actions")

    async def fork(self) -> "AsyncEnv":
        """Return an independent copy of the running episode."""
        raise Unsupported(f"{type(self).__name__} has no fork()")


class Conversation:
    """An episode as a policy sees it: the messages so far, the task, and which player it is.

    A conversation belongs to one player of one episode. ``memory`` belongs to the policy, for the length of the episode: token
    ids rendered so far, a cache handle, notes.

    Args:
        task: The task of the episode.
        env: The environment, for a policy that declares ``privileged = True``; ``None`` for every other policy.
        player: The name of the player, in an episode of several.
        seed_path: (run seed, group, member, attempt), from which ``seed`` is derived.
    """

    __slots__ = ("_env", "_seed_path", "memory", "messages", "opening", "player", "task", "tools")

    def __init__(self, task: Task, env: AsyncEnv | None = None, *, player: str = "", seed_path: tuple[int, ...] = (0,)) -> None:
        self.task = task
        self.player = player
        self.messages: list[Message] = []
        self.opening = 0
        """How many messages stand before the first observation. Those of an assistant among them are examples, not turns."""
        self.tools: Sequence[Mapping[str, Any]] = ()
        """The schemas of the tools that the environment offers, from ``info["tools"]``."""
        self.memory: dict[str, Any] = {}
        self._env = env
        self._seed_path = seed_path

    @property
    def env(self) -> AsyncEnv:
        """The environment itself, for baselines and tree search.

        Raises:
            PolicyError: The policy does not declare ``privileged = True``.
        """
        if self._env is None:
            raise PolicyError(
                "this policy may not use conversation.env, because the environment knows the answers. A baseline or a tree "
                "search sets `privileged = True` on its class; reports then label its scores as privileged"
            )
        return self._env

    @property
    def observation(self) -> Content:
        """The latest observation."""
        return self.messages[-1].content

    @property
    def turn(self) -> int:
        """The number of actions that this player has taken."""
        return sum(message.role == "assistant" for message in self.messages[self.opening :])

    @property
    def seed(self) -> int:
        """The player's own seed, derived from the run's seed, the task, group, member, attempt and player."""
        seed, *rest = self._seed_path
        return derive_seed(seed, "policy", self.task.env, self.task.seed, self.task.key, *rest, self.player)


class Policy(Protocol):
    """Acts in episodes. One policy serves all episodes at once: keep what belongs to one episode in ``conversation.memory``.

    Two class attributes are optional. ``name`` is what trajectories and reports call the policy. ``privileged = True`` gives
    the policy ``conversation.env``, for baselines and tree search; reports then label its scores as privileged.

    A policy that holds something for the length of an episode, such as a process, has a method ``async def
    end_episode(conversation, final_observation, seconds)``. It is called exactly once per conversation, also after a failure,
    and may wait for ``seconds``. It may return a ``PlayedRecord`` with the tokens that the policy has recorded itself.

    Example::

        class Echo:
            def act(self, conversation):
                return text_of(conversation.observation)
    """

    def act(self, conversation: Conversation) -> Completion | str | Awaitable[Completion | str]:
        """Return the next action, given the messages so far. ``act`` may be ``def`` or ``async def``."""
        ...


class Tool(Protocol):
    """A tool that the agent may call.

    It has three attributes and ``__call__``. ``palestra.tool`` makes a tool of a typed function. A tool that needs
    more, such as a state for each episode, inherits from ``EpisodeTool``.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""

    async def __call__(self, **arguments: Any) -> ToolResult: ...


class EpisodeTool(ABC):
    """Base class of a tool that has a secret, waits for the machine, or has a state for each episode.

    Only the three attributes of ``Tool`` and ``__call__`` have no default. ``UseTools`` looks for every member by name, so a
    class that has some of them need not inherit.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""
    secrets: Sequence[str] = ()
    """Texts that are never shown, such as a key: ``UseTools`` replaces them in every answer of the tool."""
    waiting_since: float | None = None
    """The event loop's time since when the current call has waited for the machine, or ``None`` while it runs. A call that has
    waited for half of its deadline when the deadline passes is a failure of the machine, not of the agent."""

    @abstractmethod
    async def __call__(self, /, **arguments: Any) -> ToolResult:
        """Answer a call. The agent sees the result; an exception is a tool that crashed."""

    def for_episode(self, shared: MutableMapping[Any, Any]) -> Tool:
        """Return the tool as one episode uses it, with a state of its own: an interpreter, a session. By default, this tool.

        ``shared`` is a dictionary that all tools of the episode receive, so that tools of one server can share a connection.
        """
        return self

    async def close(self) -> None:  # noqa: B027 - a default, for tools that hold nothing
        """Free what the episode's tool holds. Called once, when the episode ends, on what ``for_episode`` returned.

        A tool that all episodes share is never closed.
        """

    async def fork(self) -> Tool:
        """Return an independent copy of the episode's tool. By default, an episode with this tool cannot be forked."""
        raise Unsupported(f"this episode cannot be forked: the tool {self.name!r} keeps state for it and has no fork()")


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to draw tokens. Do not set ``top_p`` and ``top_k`` in training: they sample from another distribution."""

    max_tokens: int = 512
    temperature: float = 1.0
    """0 takes the likeliest token; its log-prob is then that of the untempered distribution."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    stop: tuple[str, ...] = ()
    """Sampling ends with the token that completes one of these."""
    stop_ids: tuple[int, ...] = ()
    """Sampling ends with one of these; it is part of what was sampled."""
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(f"{self} cannot be sampled from: max_tokens >= 1, temperature >= 0, 0 < top_p <= 1, top_k >= 0")


class EngineSession:
    """One growing context. An engine may keep its cache and its replica until the session is garbage-collected."""

    __slots__ = ("__weakref__",)


class Generation(NamedTuple):
    """The result of a call of an engine."""

    tokens: Tokens
    finish: Finish


class Engine(Protocol):
    """Samples tokens: token ids in; token ids, their log-probs and the version of the weights out."""

    context_length: int
    """Prompt and sampled tokens together never exceed it."""

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        """Sample a continuation of ``prompt``. Any number of calls may run at once."""
        ...

    async def update_weights(self, source: Any, version: int) -> None:
        """Load new weights between two tokens of the running calls, and label the following tokens with ``version``."""
        ...

    async def pause(self) -> None:
        """Stop sampling until ``resume``. Running calls wait and lose nothing."""
        ...

    async def resume(self) -> None:
        """Continue sampling after ``pause``."""
        ...

    async def close(self) -> None:
        """Free all resources."""
        ...


class Reply(NamedTuple):
    """The text of sampled tokens."""

    text: str
    """The action: without stop token or reasoning, tool calls in their canonical form."""
    reasoning: str = ""


class Renderer(Protocol):
    """Messages to token ids and back, for one tokenizer.

    The gateway for agents calls a renderer from several threads at a time. So a renderer keeps nothing of a call that another
    call could see, and its tokenizer must allow this, as the fast tokenizers of transformers do.
    """

    stop_ids: tuple[int, ...]
    """A sampled turn ends with one of these."""

    def first(self, messages: Sequence[Message]) -> Ints:
        """Return the ids of a whole conversation, up to the point where the assistant begins to write."""
        ...

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        """Return what to append to ``prompt + sampled`` so that the conversation continues with ``messages``.

        It holds whatever closes the sampled turn and was not sampled itself, and ends where the assistant begins to write. As
        only the difference is returned, the prefix cannot change. ``None`` if the template would rewrite what stands before:
        then the conversation starts over with ``first``, in a new segment.
        """
        ...

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        """Return the text of ``ids``, which were sampled after ``prompt``."""
        ...
