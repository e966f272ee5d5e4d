"""A policy that runs an agent: a program of another framework that calls a model behind an API.

The program gets an address, a key and the first observation. It plays by calling ``step(action)``, by calling the
environment's tools over MCP, or by returning a text, which is its action. The gateway answers its calls to the model and
records them. For the episode the program is a policy like any other: ``act`` returns its next action, and the deadline, the
budget and the clean-up are those of the episode.

An async program runs on the event loop and is cancelled at the end. A plain one runs in a worker process, which can be killed.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from palestra.agents.episode import CallBudget, EpisodeCosts, SamplingRule
from palestra.agents.gateway import Gateway, OpenEpisode
from palestra.agents.hosted import Start
from palestra.agents.limits import GatewayLimits
from palestra.agents.performing import InProcess, InWorkerProcess, Move, Performance
from palestra.agents.tooldoor import ToolDoor
from palestra.agents.upstream import Upstream
from palestra.core import Conversation, Engine, Renderer, Sampling
from palestra.errors import EpisodeError, PolicyError, UsageError
from palestra.foundation.references import resolve
from palestra.trajectory import Completion, Content, Finish, PlayedRecord, Usage, text_of

__all__ = ["Program"]

_MEMORY = "program"


@dataclass(eq=False, slots=True)
class _Playing:
    """One episode of the program."""

    opened: OpenEpisode
    performance: Performance
    begun: bool = False
    ended: bool = False
    reported: EpisodeCosts = field(default_factory=EpisodeCosts)
    """The costs that earlier turns have reported."""


class Program:
    """Play episodes with an agent.

    Args:
        run: A function of one argument, or its name ``module:function``. The argument has ``base_url``, ``anthropic_url``,
            ``api_key``, ``model``, ``messages``, ``observation``, ``task``, ``ended`` and ``step(action)``, and ``mcp_url`` and
            ``mcp_command`` for agents that take the environment's tools from an MCP server. An ``async def``
            runs on the event loop and awaits ``step``; a plain function runs in a worker process. If it returns a text, the
            text is its last action.
        engine: Samples the replies. With an ``Upstream`` the agent's calls go to another API as the agent wrote them; the
            episodes have text, usage and cost, and no tokens to train on.
        renderer: Turns messages into token ids. It must have ``with_tools``, as the renderers of Palestra have. An ``Upstream``
            needs none.
        sampling: Temperature and the most tokens per call.
        budget: What an episode may use. An agent above it gets a final text, and the episode stops with ``budget``.
        honor: Whether the agent's own temperature and ``top_p`` apply. Leave it out for training.
        auxiliary: Whether asides such as titles and summaries are trained as well.
        grace: Seconds that the agent has to return after the episode has ended. Then it is stopped.
        variables: Names of environment variables that a plain program's worker process gets.
        limits: What an agent may send, and what its requests may make the process keep.

    Example::

        program = palestra.agents.Program("my_agent:run", engine, renderer_for(tokenizer))
        trajectories = palestra.collect("game:GuessTheNumber-v0-easy", program, n=8)
    """

    def __init__(
        self,
        run: str | Callable[..., Any],
        engine: Engine | Upstream,
        renderer: Renderer | None = None,
        sampling: Sampling | None = None,
        *,
        budget: CallBudget | None = None,
        honor: bool = False,
        auxiliary: bool = False,
        grace: float = 5.0,
        variables: tuple[str, ...] = (),
        limits: GatewayLimits | None = None,
    ) -> None:
        self._made_of = partial(
            Program,
            run,
            engine,
            renderer,
            sampling,
            budget=budget,
            honor=honor,
            auxiliary=auxiliary,
            grace=grace,
            variables=variables,
            limits=limits,
        )
        self._run = resolve(run) if isinstance(run, str) else run
        if not callable(self._run):
            raise UsageError(f"the agent {run!r} is not a function: give a function of one argument, or module:function")
        self.name = str(getattr(self._run, "__name__", type(self._run).__name__))
        """The name in reports."""
        self._async = inspect.iscoroutinefunction(self._run)
        self._reference = run if isinstance(run, str) else "" if self._async else _reference(self._run)
        rule = SamplingRule(sampling or Sampling(), honor=honor)
        with_tools: Callable[[Any], Renderer] | None = getattr(renderer, "with_tools", None)
        if with_tools is None and not isinstance(engine, Upstream):
            raise UsageError(f"{type(renderer).__name__} has no with_tools(tools), so the agent's tools could not be shown")
        self.gateway = Gateway(engine, with_tools, rule=rule, limits=limits)
        self._budget = budget
        self._auxiliary = auxiliary
        self._grace = grace
        self._variables = variables
        self._playing = 0
        self._served = contextlib.AsyncExitStack()
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Callable[[], "Program"], tuple[()]]:
        """Send what the program is made of. The copy, such as one on a worker of a cluster, has a gateway of its own."""
        return self._made_of, ()

    async def act(self, conversation: Conversation) -> Completion:
        playing: _Playing | None = conversation.memory.get(_MEMORY)
        if playing is None:
            playing = conversation.memory[_MEMORY] = await self._open(conversation)
        playing.opened.record.turn = conversation.turn
        if playing.ended:
            return self._completion(playing, Move(None, True))
        try:
            if playing.begun:
                move = await playing.performance.proceed(conversation.observation)
            else:
                playing.begun = True
                move = await playing.performance.begin()
        except Exception as error:
            playing.ended = True
            raise _blamed(self.name, error, playing.opened.record.failure) from error
        playing.ended = move.ended
        return self._completion(playing, move)

    async def end_episode(self, conversation: Conversation, final: Content, seconds: float) -> PlayedRecord | None:
        """Stop the program, at the latest after ``seconds``, and return its recording.

        Calls that it makes in the meantime are answered and not recorded.
        """
        playing: _Playing | None = conversation.memory.pop(_MEMORY, None)
        if playing is None:
            return None
        grace = 0.0  # if the engine does not stop in time, the program stops at once
        try:
            try:
                recording = await playing.opened.record.seal()
                grace = min(self._grace, seconds)
            finally:
                if playing.begun:
                    await playing.performance.finish(final, grace)
            return recording.played(auxiliary=self._auxiliary)
        finally:
            await self._leave(playing.opened)

    async def _open(self, conversation: Conversation) -> _Playing:
        self._playing += 1
        opened: OpenEpisode | None = None
        try:
            async with self._lock:
                if not self.gateway.url:
                    await self._served.enter_async_context(self.gateway.serving())
            opened = self.gateway.open(seed=conversation.seed, budget=self._budget)
            performance = self._performance(opened, conversation)
            actions = performance.actions
            opened.record.door = ToolDoor(
                lambda: conversation.tools,
                actions.take,
                lambda: actions.ended,
                opened.record.memory,
                self.gateway.limits.pending,
            )
            return _Playing(opened, performance)
        except BaseException:
            await self._leave(opened)
            raise

    async def _leave(self, opened: OpenEpisode | None) -> None:
        """Free what an episode holds. What cannot fail or wait comes first."""
        self._playing -= 1
        if opened is not None:
            if opened.record.door is not None:
                opened.record.door.close()
            self.gateway.forget(opened)
        async with self._lock:
            if not self._playing:  # this was the last one
                await self._served.aclose()

    def _performance(self, opened: OpenEpisode, conversation: Conversation) -> Performance:
        start = Start(
            base_url=opened.openai_url,
            anthropic_url=opened.anthropic_url,
            api_key=opened.key,
            model=self.gateway.model,
            messages=tuple({"role": message.role, "content": text_of(message.content)} for message in conversation.messages),
            task=conversation.task,
            mcp_url=opened.mcp_url,
        )
        if self._async:
            return InProcess(self._run, start)
        return InWorkerProcess(self._reference, start, self._variables)

    @property
    def _lock(self) -> asyncio.Lock:
        """Only one episode starts or ends the server. A lock belongs to its event loop; a policy may outlive several."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    def _completion(self, playing: _Playing, move: Move) -> Completion:
        record = playing.opened.record
        costs, before = replace(record.costs), playing.reported
        playing.reported = costs
        usage = Usage(
            costs.prompt_tokens - before.prompt_tokens,
            costs.sampled_tokens - before.sampled_tokens,
            costs.dollars - before.dollars,
        )
        if move.action is not None:
            return Completion(move.action, usage=usage)
        finish = Finish.BUDGET if record.spent else Finish.OVERFLOW if record.counts.overflowed else Finish.EMPTY
        return Completion("", finish, usage=usage)


def _reference(run: Callable[..., Any]) -> str:
    module, name = getattr(run, "__module__", ""), getattr(run, "__qualname__", "<")
    if module in ("", "__main__") or "<" in name:
        raise UsageError(
            "a plain function runs in a worker process, which imports it by name: move it into a module and give "
            "module:function, or make it async"
        )
    return f"{module}:{name}"


def _blamed(name: str, error: Exception, engine: Exception | None) -> Exception:
    """The error of the episode: the engine's if it failed first, else the agent's."""
    if isinstance(engine, EpisodeError):
        return engine
    if isinstance(error, EpisodeError):
        return error
    blamed = PolicyError(f"the agent {name} failed: {error}" if engine is None else f"the engine failed: {engine}")
    blamed.kind = type(error if engine is None else engine).__qualname__
    return blamed
