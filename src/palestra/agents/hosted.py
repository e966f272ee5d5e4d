"""The episode as a program sees it, and a plain program in a worker process.

A plain function blocks while it plays, so it runs in a worker process that can be killed (``palestra.adapters.workers``).
Workers host environments; ``HostedProgram`` is one whose observations are the program's actions: ``reset`` starts the program
and returns its first action, and ``step`` passes it an observation and returns the next action.
"""

import inspect
import json
import queue
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from palestra.agents import mcp_stdio
from palestra.core import Env, Step
from palestra.errors import PolicyError
from palestra.foundation.references import resolve
from palestra.trajectory import Task

__all__ = ["HostedProgram", "ProgramContext", "Start"]

_Answer = TypeVar("_Answer", bound=str | Awaitable[str])


class Start(msgspec.Struct, frozen=True):
    """How an episode begins for a program."""

    base_url: str
    anthropic_url: str
    api_key: str
    model: str
    messages: tuple[Mapping[str, str], ...]
    task: Task
    mcp_url: str = ""


class ProgramContext(Generic[_Answer]):
    """One episode, as an agent's program sees it.

    Example::

        async def run(episode):
            client = openai.AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key)
            while not episode.ended:
                ...
                observation = await episode.step(action)   # without ``await`` in a plain function
    """

    def __init__(self, start: Start, step: Callable[[str], _Answer]) -> None:
        self.base_url = start.base_url
        """The ``base_url`` of OpenAI's clients."""
        self.anthropic_url = start.anthropic_url
        """The ``base_url`` of Anthropic's clients."""
        self.api_key = start.api_key
        """The key of this episode, for both kinds of clients."""
        self.model = start.model
        self.mcp_url = start.mcp_url
        """The environment's tools as an MCP server over streamable HTTP; ``api_key`` is its bearer token."""
        self.mcp_command: tuple[str, ...] = (sys.executable, "-I", "-S", str(Path(mcp_stdio.__file__)))
        """The same tools as a command, for agents that start their MCP servers."""
        self.mcp_environment = {mcp_stdio.URL: start.mcp_url, mcp_stdio.KEY: start.api_key}
        """The environment variables of the command."""
        self.messages: Sequence[Mapping[str, str]] = start.messages
        """The messages at the beginning: those before the first observation, and the first observation."""
        self.observation = start.messages[-1]["content"]
        """The latest observation, as text."""
        self.task = start.task
        self.ended = False
        """Whether the episode has ended. The last ``step`` returns the final observation."""
        self._step = step

    def step(self, action: str) -> _Answer:
        """Take an action in the environment and return the next observation as text."""
        return self._step(action)


class HostedProgram(Env):
    """A plain program in this process, played by its host step by step."""

    blocking = True

    def __init__(self, program: str) -> None:
        self._program = program
        self._moves: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._observations: queue.Queue[tuple[str, bool]] = queue.Queue()
        self._context: ProgramContext[str] | None = None
        self._turn = threading.Lock()
        """Held from an action to its observation: frameworks call tools in several threads, and each needs its own answer."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        run = resolve(self._program)
        start = msgspec.convert(self.task.params["start"], Start)
        context = self._context = ProgramContext(start, self._take)
        threading.Thread(target=self._play, args=(run, context), daemon=True).start()
        return self._next()

    def step(self, action: str) -> Step:
        passed = json.loads(action)  # by InWorkerProcess
        self._observations.put((passed["observation"], passed["ended"]))
        text, info = self._next()
        return Step(text, 0.0, info["ended"], False, info)

    def _next(self) -> tuple[str, dict[str, Any]]:
        kind, value = self._moves.get()
        if kind == "error":
            failed = PolicyError(f"the agent failed with {type(value).__qualname__}: {value}")
            raise failed from value
        return value or "", {"ended": kind == "end", "action": value is not None}

    def _take(self, action: str) -> str:
        assert self._context is not None
        with self._turn:
            if not self._context.ended:
                self._moves.put(("step", str(action)))
                self._context.observation, self._context.ended = self._observations.get()
            return self._context.observation

    def _play(self, run: Callable[[ProgramContext[str]], Any], context: ProgramContext[str]) -> None:
        try:
            result = run(context)
            if inspect.isawaitable(result):
                raise TypeError(f"{self._program} is an async function; it runs on the event loop, not in a worker")
            self._moves.put(("end", None if result is None else str(result)))
        except BaseException as error:  # noqa: BLE001 - the error belongs to the episode
            self._moves.put(("error", error))
