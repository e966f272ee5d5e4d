"""Tools for an episode. The agent calls them in its text, and the environment does not see the calls.

An action with a call, or with text that looks like one, does not reach the environment. The calls run side by side, each
under its own deadline, and their results are the observation. The agent sees every error (bad JSON, an unknown tool, wrong
arguments, a deadline, a crash, a used-up budget), and ``info`` counts it. Only an action without a call is a move.

The agent does not see failures of the machine: the episode fails with an ``InfrastructureError``, is retried, and is never
scored. That is an error for which ``is_infrastructure`` holds, and a deadline that passes while the tool has waited for the
machine for at least half of the deadline without a break. A tool says so with ``waiting_since``, the loop's time when this
wait began, or ``None``. Shorter waits do not count: between its own queued calls an agent could cause them.

A step that answers calls has ``info["role"] == "tool"``: its observation is a result per call, in the order of the calls.
``info["tools"]`` of every step says what this action called and how that went. The reset's ``info["tools"]`` holds the
schemas, for policies that pass them to a chat API.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Info, Step, Tool
from palestra.errors import EpisodeError, InfrastructureError, Unsupported, UsageError, is_infrastructure
from palestra.foundation.telemetry import span
from palestra.tools.forms import CallForm, find_calls
from palestra.tools.functions import BadArguments
from palestra.tools.schemas import argument_problem
from palestra.tools.showing import hide, presentable
from palestra.trajectory import Content, Task, Text, ToolCall, ToolResult
from palestra.trajectory.calls import BadCall, format_result

__all__ = ["ToolFault", "ToolRules", "UseTools"]

_GRACE_SECONDS = 0.5
"""Seconds that a cancelled call may take to clean up. After that, nothing waits for it."""


class ToolFault(StrEnum):
    """Why a call failed."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    ARGUMENTS = "arguments"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    FAILED = "failed"
    """The tool reported a failure itself."""
    REFUSED = "refused"
    """The budget is used up, or the action contains too many calls."""


@dataclass(frozen=True, kw_only=True)
class ToolRules:
    """How tools may be used."""

    forms: tuple[CallForm, ...] = (CallForm.TOOL_CALL,)
    """The forms of a call. Allow fenced code only if a fenced block cannot be an answer."""
    budget: int | None = None
    """Calls per episode; ``None`` means no limit."""
    calls_per_action: int = 8
    seconds: float = 30.0
    """Seconds per call."""
    output_characters: int = 8000
    """Characters of an answer that are shown; the middle of a longer one is left out."""
    call_reward: float = 0.0
    """Reward for each call that succeeds."""
    fault_reward: float = 0.0
    """Reward for each call that fails."""
    describe: bool = True
    """Put the tools' descriptions before the first observation."""

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.calls_per_action < 1 or self.output_characters < 100 or not self.forms:
            raise UsageError(
                f"ToolRules needs seconds > 0, calls_per_action >= 1, output_characters >= 100 and a form; got {self}"
            )


class _Overdue(Exception):
    """A call was stopped at its deadline. It is not a ``TimeoutError``, because a tool may raise that itself."""


class _AnsweredCall(NamedTuple):
    name: str
    result: ToolResult
    fault: ToolFault | None
    call: str = ""
    """The id of the call, where the model gave it one."""


class UseTools(Wrapper):
    """Lends tools to an environment: an action with calls goes to the tools, an action without goes to the environment.

    Args:
        env: The environment.
        tools: The tools, each with its own name. A tool with ``for_episode`` is opened for each episode and closed with it.
        rules: How the tools may be used; see ``ToolRules``.

    Raises:
        UsageError: Two tools have the same name, or there is no tool.

    Example::

        env = UseTools(palestra.make("game:GuessTheNumber-v0"), [PythonTool()])
    """

    shared = ("_lent", "_tools", "_left_behind")

    def __new__(cls, env: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if hasattr(env, "parameters") and callable(env):
            raise UsageError(
                f"UseTools wraps an environment, got the tool {env.name!r}: write UseTools(palestra.make(id), [tool]), or "
                f"wrappers=[palestra.wrappers.lend([tool])]"
            )
        return super().__new__(cls, env, *arguments, **keywords)

    def __init__(self, env: AsyncEnv, tools: Sequence[Tool], rules: ToolRules | None = None) -> None:
        super().__init__(env)
        names = [tool.name for tool in tools]
        if not names or len(set(names)) != len(names):
            raise UsageError(f"tools need names of their own, got {names}")
        self.rules = rules or ToolRules()
        self._lent = tuple(tools)
        self._tools: dict[str, Tool] = {}
        self._spent = 0
        self._carried: Info = {}
        """The part of the environment's latest info that the step of a call repeats."""
        self._left_behind: set[asyncio.Task[ToolResult]] = set()
        self.totals: Counter[str] = Counter()
        """Calls of this episode by outcome: ``ok`` or a fault."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await self._close_tools()
        observation, info = await self.env.reset(seed=seed, task=task)
        shared: dict[Any, Any] = {}
        self._tools = {tool.name: _for_episode(tool, shared) for tool in self._lent}
        self._spent = 0
        self.totals = Counter()
        self._remember(info)
        schemas = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)} for tool in self._lent
        ]
        if self.rules.describe:
            observation = _before(_description(schemas, self.rules), observation)
        return observation, {**info, "tools": schemas}

    async def step(self, action: str) -> Step:
        attempts = find_calls(action, self.rules.forms)
        if not attempts:
            step = Step(*await self.env.step(action))
            self._remember(step.info)
            return step._replace(info={**step.info, "tools": {"totals": dict(self.totals)}})
        answers = await self._answer_all(attempts)
        self.totals.update(_outcome(answer) for answer in answers)
        faults = sum(answer.fault is not None for answer in answers)
        reward = self.rules.call_reward * (len(answers) - faults) + self.rules.fault_reward * faults
        observation = "\n".join(format_result(answer.name, answer.result, answer.call) for answer in answers)
        calls = [_recorded(answer) for answer in answers]
        account = {"calls": calls, "totals": dict(self.totals)}
        return Step(observation, reward, False, False, {**self._carried, "role": "tool", "tools": account})

    async def close(self) -> None:
        try:
            await self._close_tools()
        finally:
            await self.env.close()

    async def fork(self) -> AsyncEnv:
        """Return an independent copy.

        Raises:
            Unsupported: A tool keeps state for the episode and has no ``fork``.
        """
        lent = {id(tool) for tool in self._lent}
        opened = {name: tool for name, tool in self._tools.items() if id(tool) not in lent}
        forks: dict[str, Any] = {name: getattr(tool, "fork", None) for name, tool in opened.items()}
        if stuck := [name for name, fork in forks.items() if fork is None]:
            raise Unsupported(f"this episode cannot be forked: the tool {stuck[0]!r} keeps state for it and has no fork()")
        twin = await super().fork()
        assert isinstance(twin, UseTools)
        twin._tools, twin._left_behind = {}, set()
        try:
            for name, tool in self._tools.items():
                twin._tools[name] = await forks[name]() if name in forks else tool
        except BaseException:
            await twin.close()
            raise
        return twin

    # ------------------------------------------------------------------------------------------------------------- the calls

    async def _answer_all(self, attempts: Sequence[ToolCall | BadCall]) -> list[_AnsweredCall]:
        allowed = self.rules.calls_per_action
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(attempt)) for attempt in attempts[:allowed]]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # one boundary is to blame, not a group of them
        # The first calls are those that were made; the others have no task.
        answers = [task.result()._replace(call=getattr(made, "id", "")) for task, made in zip(tasks, attempts, strict=False)]
        if len(attempts) > allowed:
            text = f"only {allowed} calls may stand in one message; {len(attempts) - allowed} more were not made"
            answers.append(_fault("", ToolFault.REFUSED, text))
        return answers

    async def _answer(self, attempt: ToolCall | BadCall) -> _AnsweredCall:
        if isinstance(attempt, BadCall):
            return _fault("", ToolFault.MALFORMED, attempt.error)
        if self.rules.budget is not None and self._spent >= self.rules.budget:
            return _fault(attempt.name, ToolFault.REFUSED, f"all {self.rules.budget} calls are used up: give your answer now")
        self._spent += 1
        tool = self._tools.get(attempt.name)
        if tool is None:
            return _fault(attempt.name, ToolFault.UNKNOWN, f"there is no such tool; there are: {', '.join(self._tools)}")
        if problem := argument_problem(tool.parameters, attempt.arguments):
            return _fault(attempt.name, ToolFault.ARGUMENTS, f"wrong arguments: {problem}")
        result, fault = await self._call(tool, attempt)
        text = presentable(hide(result.text, getattr(tool, "secrets", ())), self.rules.output_characters)
        return _AnsweredCall(attempt.name, ToolResult(text, fault is None, result.source), fault)

    async def _call(self, tool: Tool, call: ToolCall) -> tuple[ToolResult, ToolFault | None]:
        task = asyncio.ensure_future(tool(**call.arguments))
        try:
            with span("tool_call", tool=tool.name):
                result: Any = await self._in_time(tool, task)
        except _Overdue:
            return ToolResult(f"no answer within {self.rules.seconds:g} seconds; the call was stopped"), ToolFault.TIMEOUT
        except BadArguments as error:
            return ToolResult(f"wrong arguments: {error}"), ToolFault.ARGUMENTS
        except EpisodeError:
            raise  # not the agent's business: the episode failed, at a boundary that the error names
        except Exception as error:
            if is_infrastructure(error):
                raise InfrastructureError(f"the tool {tool.name!r} is out of order: {type(error).__name__}: {error}") from error
            return ToolResult(f"the tool failed: {type(error).__name__}: {error}"), ToolFault.CRASHED
        if not isinstance(result, ToolResult):
            return ToolResult("the tool failed: it gave no result"), ToolFault.CRASHED
        return result, None if result.ok else ToolFault.FAILED

    async def _in_time(self, tool: Tool, task: "asyncio.Future[ToolResult]") -> ToolResult:
        """The task's result, or ``_Overdue``; a task that ignores its cancellation is left behind, not waited for."""
        try:
            done, _ = await asyncio.wait({task}, timeout=self.rules.seconds)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS)
            raise
        if done:
            if task.cancelled():
                raise RuntimeError("the tool cancelled itself")
            return task.result()
        starved = self._is_starved(tool)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if not done and isinstance(task, asyncio.Task):
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)
        if starved:
            raise InfrastructureError(
                f"a call of {tool.name!r} did not begin within {self.rules.seconds:g} s: "
                "the machine is overloaded; lower the concurrency or raise the deadline of calls"
            )
        raise _Overdue

    def _is_starved(self, tool: Tool) -> bool:
        """Whether the machine, and not the agent's own queue of calls, is to blame for a deadline that passes now."""
        since: float | None = getattr(tool, "waiting_since", None)
        return since is not None and asyncio.get_running_loop().time() - since >= self.rules.seconds / 2

    # ---------------------------------------------------------------------------------------------------------------- the rest

    def _remember(self, info: dict[str, Any]) -> None:
        """After a call, the same player still acts."""
        self._carried = {"player": info["player"]} if "player" in info else {}

    async def _close_tools(self) -> None:
        lent = {id(tool) for tool in self._lent}
        tools, self._tools = self._tools, {}
        async with contextlib.AsyncExitStack() as stack:
            for tool in tools.values():
                close: Callable[[], Any] | None = getattr(tool, "close", None)
                if close is not None and id(tool) not in lent:
                    stack.push_async_callback(close)


def _recorded(answer: _AnsweredCall) -> dict[str, str]:
    source = {"source": answer.result.source} if answer.result.source else {}
    return {"name": answer.name, "outcome": _outcome(answer), **source}


def _outcome(answer: _AnsweredCall) -> str:
    return "ok" if answer.fault is None else answer.fault.value


def _fault(name: str, fault: ToolFault, text: str) -> _AnsweredCall:
    return _AnsweredCall(name, ToolResult(presentable(text, 1000), ok=False), fault)


def _for_episode(tool: Tool, shared: dict[Any, Any]) -> Tool:
    """The tool as this episode uses it; ``shared`` is where tools of one server meet."""
    opened: Callable[[dict[Any, Any]], Tool] | None = getattr(tool, "for_episode", None)
    return tool if opened is None else opened(shared)


def _description(schemas: Sequence[dict[str, Any]], rules: ToolRules) -> str:
    lines = ["You may call these tools:", *(msgspec.json.encode(schema).decode() for schema in schemas)]
    lines.append(
        f"To call, write {' or '.join(_EXAMPLES[form] for form in rules.forms)}. Several calls may stand in one message."
    )
    lines.append("A message with a call is answered by the tools; a message without one is your move.")
    if rules.budget is not None:
        lines.append(f"You have {rules.budget} calls.")
    return "\n".join(lines)


def _before(text: str, observation: Content) -> Content:
    if isinstance(observation, str):
        return f"{text}\n\n{observation}"
    return (Text(f"{text}\n\n"), *observation)


_EXAMPLES = {
    CallForm.TOOL_CALL: '<tool_call>{"name": …, "arguments": {…}}</tool_call>',
    CallForm.PYTHON_FENCE: "a fenced python block",
    CallForm.PYTHON_TAG: "<python>code</python>",
    CallForm.SEARCH_TAG: "<search>query</search>",
}
