"""The Python tool: model-written code in a box.

One-shot, every call is a fresh interpreter; stateful, one interpreter lives through the episode. A call that breaks a limit
ends the interpreter; the model is told, and the next call starts a new one.
"""

import asyncio
import contextlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from palestra.sandbox import KilledBy, Limits, Outcome, Program, Sandbox, Session
from palestra.sandbox.shared import shared_sandbox
from palestra.trajectory import ToolResult

__all__ = ["PythonTool"]

_WHY = {
    KilledBy.WALL_CLOCK: "it did not end in time",
    KilledBy.CPU_TIME: "it used too much processor time",
    KilledBy.MEMORY: "it used too much memory",
    KilledBy.OUTPUT: "it printed too much",
    KilledBy.FILES: "it made too many files",
    KilledBy.CANCELLED: "it was stopped",
}


class PythonTool:
    """Runs Python. Lent to many episodes at once; ``for_episode`` gives each its own interpreter."""

    name = "python"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source. Print what you want to see."}},
        "required": ["code"],
        "additionalProperties": False,
    }

    def __init__(self, sandbox: Sandbox | None = None, *, stateful: bool = True, limits: Limits | None = None) -> None:
        self._sandbox = sandbox
        self._limits = limits or (sandbox.limits if sandbox is not None else Limits())
        self.stateful = stateful
        state = "Variables and files stay from call to call." if stateful else "Every call starts a fresh interpreter."
        self.description = (
            f"Run Python code in a sandbox without network, for at most {self._limits.wall_seconds:g} seconds. {state}"
        )

    def for_episode(self, _shared: MutableMapping[Any, Any] | None = None) -> "EpisodePython":
        """The tool as one episode uses it."""
        return EpisodePython(self, self._sandbox, self._limits)

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        episode = self.for_episode()
        try:
            return await episode(**arguments)
        finally:
            await episode.close()


class EpisodePython:
    """One episode's interpreter, opened by the first call."""

    def __init__(self, tool: PythonTool, sandbox: Sandbox | None, limits: Limits) -> None:
        self.name, self.description, self.parameters = tool.name, tool.description, tool.parameters
        self._stateful = tool.stateful
        self._sandbox = sandbox
        self._limits = limits
        self._session: Session | None = None
        self._lost = False
        self._held = contextlib.AsyncExitStack()
        self._turn = asyncio.Lock()

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        async with self._turn:  # one interpreter runs one cell at a time, in the order they were written
            return await self._run(**arguments)

    async def _run(self, code: str) -> ToolResult:
        if self._sandbox is None:
            self._sandbox = await self._held.enter_async_context(shared_sandbox(self._limits))
        if not self._stateful:
            return _told(await self._sandbox.run(Program(code=code, wall_seconds=self._limits.wall_seconds)), "")
        note = ""
        if self._session is None or not self._session.alive:
            note = "(The interpreter was started anew; earlier variables are lost.)\n" if self._lost else ""
            await self._end_session()
            self._session = await self._sandbox.open_session()
        outcome = await self._session.run(code, wall_seconds=self._limits.wall_seconds)
        self._lost = not self._session.alive
        return _told(outcome, note)

    async def close(self) -> None:
        """End the interpreter."""
        await self._end_session()
        self._sandbox = None
        await self._held.aclose()

    async def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _told(outcome: Outcome, note: str) -> ToolResult:
    printed = outcome.text.rstrip("\n")
    if outcome.dropped_output:
        printed += f"\n[{outcome.dropped_output} more bytes were printed]"
    if outcome.killed_by is not None:
        return ToolResult(f"{note}{printed}\n[stopped: {_WHY[outcome.killed_by]}]".lstrip("\n"), ok=False)
    return ToolResult(note + (printed or "(no output)"), ok=outcome.ok)
