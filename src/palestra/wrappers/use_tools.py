"""Lends an episode tools. The agent calls them in its text; the environment never knows.

An action that contains a call, or anything meant as one, does not reach the environment: the calls run side by side, each
under its own deadline, and what they answered is the observation. Whatever goes wrong (bad JSON, an unknown tool, wrong
arguments, a deadline, a crash, a spent budget) is told to the agent and counted. Only an action without a call is a move.

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

from palestra.calls import BadCall
from palestra.core import AsyncEnv, Step, Tool, Wrapper
from palestra.errors import EpisodeError, UsageError
from palestra.tools.forms import CallForm, find_calls, format_result
from palestra.tools.functions import BadArguments
from palestra.tools.schemas import argument_problem
from palestra.tools.showing import hide, presentable
from palestra.trajectory import Content, Task, Text, ToolCall, ToolResult

__all__ = ["ToolFault", "ToolRules", "UseTools"]

_GRACE_SECONDS = 0.5
"""How long a cancelled call may take to clean up before it is left behind."""


class ToolFault(StrEnum):
    """What can go wrong with a call."""

    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    ARGUMENTS = "arguments"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    FAILED = "failed"
    """The tool itself said so."""
    REFUSED = "refused"
    """The budget is spent, or the action holds too many calls."""


@dataclass(frozen=True, kw_only=True)
class ToolRules:
    """How tools may be used."""

    forms: tuple[CallForm, ...] = (CallForm.TOOL_CALL,)
    """How calls are written. Fenced code is a call only where it cannot be an answer."""
    budget: int | None = None
    """Calls in an episode; ``None`` is without end."""
    calls_per_action: int = 8
    seconds: float = 30.0
    """The deadline of each call."""
    output_characters: int = 8000
    """How much of an answer is shown; the middle is left out."""
    call_reward: float = 0.0
    """For every call that went well."""
    fault_reward: float = 0.0
    """For every one that did not."""
    describe: bool = True
    """Put the tools' descriptions before the first observation."""

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.calls_per_action < 1 or self.output_characters < 100 or not self.forms:
            raise UsageError(f"tool rules need a deadline, at least one call and form, and room for an answer; got {self}")


class _Answer(NamedTuple):
    name: str
    result: ToolResult
    fault: ToolFault | None


class UseTools(Wrapper):
    """Intercepts tool calls. Tools with ``for_episode(shared)`` are opened for each episode and closed with it."""

    def __init__(self, env: AsyncEnv, tools: Sequence[Tool], rules: ToolRules | None = None) -> None:
        super().__init__(env)
        names = [tool.name for tool in tools]
        if not names or len(set(names)) != len(names):
            raise UsageError(f"tools need names of their own, got {names}")
        self.rules = rules or ToolRules()
        self._lent = tuple(tools)
        self._tools: dict[str, Tool] = {}
        self._spent = 0
        self._carried: dict[str, Any] = {}
        self._left_behind: set[asyncio.Task[ToolResult]] = set()
        self.totals: Counter[str] = Counter()
        """Calls of this episode by how they went: ``ok`` or a fault."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await self._close_tools()
        observation, info = await self.env.reset(seed=seed, task=task)
        shared: dict[Any, Any] = {}
        self._tools = {tool.name: _for_episode(tool, shared) for tool in self._lent}
        self._spent = 0
        self.totals = Counter()
        self._remember(info)
        schemas = [_schema(tool) for tool in self._lent]
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
        observation = "\n".join(format_result(answer.name, answer.result) for answer in answers)
        return Step(observation, reward, False, False, {**self._carried, "tools": self._account(answers)})

    async def close(self) -> None:
        try:
            await self._close_tools()
        finally:
            await self.env.close()

    # ------------------------------------------------------------------------------------------------------------- the calls

    async def _answer_all(self, attempts: Sequence[ToolCall | BadCall]) -> list[_Answer]:
        allowed = self.rules.calls_per_action
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(attempt)) for attempt in attempts[:allowed]]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # one boundary is to blame, not a group of them
        answers = [task.result() for task in tasks]
        if len(attempts) > allowed:
            text = f"only {allowed} calls may stand in one message; {len(attempts) - allowed} more were not made"
            answers.append(_fault("", ToolFault.REFUSED, text))
        return answers

    async def _answer(self, attempt: ToolCall | BadCall) -> _Answer:
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
        return _Answer(attempt.name, ToolResult(text, fault is None), fault)

    async def _call(self, tool: Tool, call: ToolCall) -> tuple[ToolResult, ToolFault | None]:
        task = asyncio.ensure_future(tool(**call.arguments))
        try:
            result: Any = await self._in_time(task)
        except TimeoutError:
            return ToolResult(f"no answer within {self.rules.seconds:g} seconds; the call was stopped"), ToolFault.TIMEOUT
        except BadArguments as error:
            return ToolResult(f"wrong arguments: {error}"), ToolFault.ARGUMENTS
        except EpisodeError:
            raise  # not the agent's business: the episode failed, at a boundary that the error names
        except Exception as error:
            return ToolResult(f"the tool failed: {type(error).__name__}: {error}"), ToolFault.CRASHED
        if not isinstance(result, ToolResult):
            return ToolResult("the tool failed: it gave no result"), ToolFault.CRASHED
        return result, None if result.ok else ToolFault.FAILED

    async def _in_time(self, task: "asyncio.Future[ToolResult]") -> ToolResult:
        """The task's result, or ``TimeoutError``; a task that ignores its cancellation is left behind, not waited for."""
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
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if not done and isinstance(task, asyncio.Task):
            self._left_behind.add(task)
            task.add_done_callback(self._left_behind.discard)
        raise TimeoutError

    # ---------------------------------------------------------------------------------------------------------------- the rest

    def _account(self, answers: Sequence[_Answer]) -> dict[str, Any]:
        calls = [{"name": answer.name, "outcome": _outcome(answer)} for answer in answers]
        return {"calls": calls, "totals": dict(self.totals)}

    def _remember(self, info: dict[str, Any]) -> None:
        """Whoever was to act still is, after a call."""
        self._carried = {"player": info["player"]} if "player" in info else {}

    async def _close_tools(self) -> None:
        lent = {id(tool) for tool in self._lent}
        tools, self._tools = self._tools, {}
        async with contextlib.AsyncExitStack() as stack:
            for tool in tools.values():
                close: Callable[[], Any] | None = getattr(tool, "close", None)
                if close is not None and id(tool) not in lent:
                    stack.push_async_callback(close)


def _outcome(answer: _Answer) -> str:
    return "ok" if answer.fault is None else answer.fault.value


def _fault(name: str, fault: ToolFault, text: str) -> _Answer:
    return _Answer(name, ToolResult(presentable(text, 1000), ok=False), fault)


def _for_episode(tool: Tool, shared: dict[Any, Any]) -> Tool:
    """The tool as this episode uses it; ``shared`` is where tools of one server meet."""
    opened: Callable[[dict[Any, Any]], Tool] | None = getattr(tool, "for_episode", None)
    return tool if opened is None else opened(shared)


def _schema(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


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
