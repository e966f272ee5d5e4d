"""The contracts, and nothing but the contracts. Everything else in Palestra falls on this file.

An action is the text a model wrote. An observation is text, or text and images. An author writes an ``Env`` (plain methods) or
an ``AsyncEnv`` (the same verbs with ``async def``); whatever runs episodes drives the async view, and wrappers exist once, on
the async side. ``Policy`` is who acts, ``Tool`` is what the agent may call. A policy that samples from weights of ours is
a ``Renderer`` (messages to token ids) and an ``Engine`` (token ids to token ids).

Two keys of ``info`` mean something to whoever runs the episode, all others are the author's:

``success``      whether the task was solved, on the last step; it is what reports count.
``stop_reason``  a ``StopReason`` that says more than ``truncated`` does; wrappers that cut an episode set it.

Several players share one episode by two more. Whoever is to act next is named by ``info["player"]`` of the reset or step that
produced the observation, and the observation is for that player alone. ``info["rewards"]`` maps players to rewards where more
than the player who acted gets one; each is credited to that player's latest turn. Every player has its own conversation, may
have its own policy, and leaves its own trajectory.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np

from palestra.encoding import Ints
from palestra.errors import Unsupported
from palestra.seeding import derive, derive_seed, fresh_seed
from palestra.trajectory import Completion, Content, Finish, Message, Task, Tokens, ToolResult

__all__ = [
    "AsyncEnv",
    "Conversation",
    "Engine",
    "Env",
    "Generation",
    "Policy",
    "Renderer",
    "Reply",
    "Sampling",
    "Session",
    "Step",
    "Tool",
    "Wrapper",
]


class Step(NamedTuple):
    """What an action led to. It unpacks as Gymnasium's five-tuple."""

    observation: Content
    reward: float
    terminated: bool
    """The task reached an end of its own: there is no future to value."""
    truncated: bool
    """Somebody stopped it before that. Never true together with ``terminated``."""
    info: dict[str, Any]


class _Traits:
    """What an environment's class declares about itself, in either colour."""

    blocking: ClassVar[bool] = False
    """Its methods wait or compute for long: run it in a worker process that can be killed."""
    reusable: ClassVar[bool] = False
    """Costly to build, good for many episodes: keep it in a pool and reset it."""
    reward_range: ClassVar[tuple[float, float]] = (-float("inf"), float("inf"))
    """Bounds of the reward of one step."""

    task: Task
    """The task of the present episode, once reset."""

    def _begin(self, seed: int | None, task: Task | None) -> None:
        if task is None:
            task = Task(f"{type(self).__module__}:{type(self).__qualname__}", fresh_seed() if seed is None else seed)
        self.task = task
        self._rng: np.random.Generator | None = None
        self._action_rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """The task's own generator, once reset. Made when it is first asked for: some tasks leave nothing to chance."""
        if self._rng is None:
            self._rng = derive(self.task.seed, self.task.key)
        return self._rng

    @property
    def action_rng(self) -> np.random.Generator:
        """The generator for ``sample_random_action``. Apart from ``rng``, so that sampling never changes the dynamics."""
        if self._action_rng is None:
            self._action_rng = derive(self.task.seed, "actions", self.task.key)
        return self._action_rng

    @property
    def floor(self) -> float:
        """What a player who never looks at the observation can score, on average. A class may say ``floor = 0.5``."""
        return 0.0

    @property
    def ceiling(self) -> float | None:
        """What the best player can score, on average, where chance or an opponent forbids that every task is solved.

        ``None`` where every task can be solved. A class may say ``ceiling = 0.5``, and should say where the number is from.
        """
        return None

    @property
    def unwrapped(self) -> "Env | AsyncEnv":
        """The author's own object, below every view and wrapper. Traits are read from it."""
        assert isinstance(self, Env | AsyncEnv)
        return self


class Env(_Traits, ABC):
    """A plain environment. Call ``super().reset(seed=seed, task=task)`` first in ``reset``; then ``self.rng`` is yours."""

    @abstractmethod
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Begin the episode that ``task`` names (or ``seed``, or chance) and show its first observation."""
        self._begin(seed, task)
        return "", {}

    @abstractmethod
    def step(self, action: str) -> Step:
        """Take the model's text. Any text: a malformed one is the model's mistake, not an exception."""

    def close(self) -> None:
        """Free what the environment holds. Called once, whatever happened."""

    def oracle(self) -> str:
        """An action that a perfect player would take here."""
        raise Unsupported(f"{type(self).__name__} has no oracle()")

    def sample_random_action(self) -> str:
        """A random well-formed action, drawn from ``self.action_rng``."""
        raise Unsupported(f"{type(self).__name__} has no sample_random_action()")

    def seed_actions(self, seed: int) -> None:
        """Make the following random actions depend on ``seed``, so that players of one task differ."""
        self._action_rng = derive(seed, "actions")

    def fork(self) -> "Env":
        """An independent copy of the present state."""
        raise Unsupported(f"{type(self).__name__} has no fork()")


class AsyncEnv(_Traits, ABC):
    """The same verbs with ``async def``: for environments that wait (a network, a browser, a model that plays the user)."""

    @abstractmethod
    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        """Begin the episode that ``task`` names (or ``seed``, or chance) and show its first observation."""
        self._begin(seed, task)
        return "", {}

    @abstractmethod
    async def step(self, action: str) -> Step:
        """Take the model's text. Any text: a malformed one is the model's mistake, not an exception."""
        raise NotImplementedError

    async def close(self) -> None:
        """Free what the environment holds. Called once, whatever happened."""

    async def healthy(self) -> bool:
        """Whether a pooled environment is fit for another episode."""
        return True

    async def oracle(self) -> str:
        """An action that a perfect player would take here."""
        raise Unsupported(f"{type(self).__name__} has no oracle()")

    async def sample_random_action(self) -> str:
        """A random well-formed action, drawn from ``self.action_rng``."""
        raise Unsupported(f"{type(self).__name__} has no sample_random_action()")

    async def seed_actions(self, seed: int) -> None:
        """Make the following random actions depend on ``seed``, so that players of one task differ."""
        self._action_rng = derive(seed, "actions")

    async def fork(self) -> "AsyncEnv":
        """An independent copy of the present state."""
        raise Unsupported(f"{type(self).__name__} has no fork()")


class Wrapper(AsyncEnv):
    """Bends an environment. Override one of the three hooks, or a verb where a hook is not enough."""

    def __init__(self, env: AsyncEnv) -> None:
        if not isinstance(env, AsyncEnv):
            raise TypeError(
                f"{type(self).__name__} wraps an AsyncEnv, got {type(env).__name__}: use make_async() or as_async()"
            )
        self.env = env

    # the three hooks

    def observation(self, observation: Content) -> Content:
        """Change what the agent sees."""
        return observation

    def action(self, action: str) -> str:
        """Change what the environment receives."""
        return action

    def reward(self, reward: float) -> float:
        """Change what a step is worth."""
        return reward

    # the verbs, passed on

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = await self.env.reset(seed=seed, task=task)
        return self.observation(observation), info

    async def step(self, action: str) -> Step:
        observation, reward, terminated, truncated, info = await self.env.step(self.action(action))
        return Step(self.observation(observation), self.reward(reward), terminated, truncated, info)

    async def close(self) -> None:
        await self.env.close()

    async def healthy(self) -> bool:
        return await self.env.healthy()

    async def oracle(self) -> str:
        return await self.env.oracle()

    async def sample_random_action(self) -> str:
        return await self.env.sample_random_action()

    async def seed_actions(self, seed: int) -> None:
        await self.env.seed_actions(seed)

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        # The task and the author's own attributes show through. "env" is absent only while unpickling or half built.
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


class Conversation:
    """What a policy sees of an episode: the messages so far, and who, where and how far it is.

    One conversation belongs to one player of one episode. ``memory`` is the policy's own: token ids rendered so far, a cache
    handle, notes; it lives and dies with the episode.
    """

    __slots__ = ("_seed_path", "env", "memory", "messages", "player", "task")

    def __init__(self, task: Task, env: AsyncEnv, *, player: str = "", seed_path: tuple[int, ...] = (0,)) -> None:
        self.task = task
        self.player = player
        self.messages: list[Message] = []
        self.memory: dict[str, Any] = {}
        self.env = env
        """The environment itself, for players that may look behind the curtain (random, oracle, human). A policy under test
        must not touch it."""
        self._seed_path = seed_path

    @property
    def observation(self) -> Content:
        """The latest observation."""
        return self.messages[-1].content

    @property
    def turn(self) -> int:
        """How many actions this player has taken."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def seed(self) -> int:
        """A seed of this player's own in this try, from (run seed, task, group, member, attempt, player)."""
        seed, *rest = self._seed_path
        return derive_seed(seed, "policy", self.task.env, self.task.seed, self.task.key, *rest, self.player)


class Policy(Protocol):
    """Who acts. One policy serves all episodes at once: what belongs to one of them goes into ``conversation.memory``."""

    async def act(self, conversation: Conversation) -> Completion:
        """The next action, given the messages so far."""
        ...


class Tool(Protocol):
    """What the agent may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""

    async def __call__(self, **arguments: Any) -> ToolResult: ...


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to draw tokens. While training leave ``top_p`` and ``top_k`` alone: a cut distribution is not the trained one."""

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


class Session:
    """One growing context. An engine may keep its cache, and send it to the same replica, until the session is garbage."""

    __slots__ = ("__weakref__",)


class Generation(NamedTuple):
    """What an engine returned."""

    tokens: Tokens
    finish: Finish


class Engine(Protocol):
    """Who samples: token ids in, token ids with their log-probs and the version of the weights out."""

    context_length: int
    """Prompt and sampled tokens together never exceed it."""

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        """Sample a continuation of ``prompt``. Any number may be under way at once."""
        ...

    async def update_weights(self, source: Any, version: int) -> None:
        """Take new weights, between two tokens of whatever is under way, and stamp what follows with ``version``."""
        ...

    async def pause(self) -> None:
        """Sample no more tokens until ``resume``. What is under way waits and loses nothing."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...

    async def close(self) -> None:
        """Free what the engine holds."""
        ...


class Reply(NamedTuple):
    """What sampled tokens say."""

    text: str
    """The action: without stop token or reasoning, tool calls in their canonical form."""
    reasoning: str = ""


class Renderer(Protocol):
    """Messages to token ids and back, for one tokenizer."""

    stop_ids: tuple[int, ...]
    """A sampled turn ends with one of these."""

    def first(self, messages: Sequence[Message]) -> Ints:
        """A whole conversation, up to where the assistant begins to write."""
        ...

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        """What to append to ``prompt + sampled`` so that the conversation goes on with ``messages``.

        It holds whatever closes the sampled turn and was not sampled itself, and ends where the assistant begins to write. As
        only the difference is returned, the prefix cannot change. ``None`` if the template would rewrite what stands before:
        then the conversation starts over with ``first``, in a new segment.
        """
        ...

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        """The text of ``ids``, sampled after ``prompt``."""
        ...
