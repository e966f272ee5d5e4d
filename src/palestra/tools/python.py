"""The Python tool: model-written code in a box.

Stateless, every call gets a new interpreter; stateful, one interpreter lives as long as the episode. A call that exceeds a
limit ends the interpreter; the model sees why, and the next call starts a new one.
"""

import asyncio
import contextlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from palestra.sandbox import KilledBy, Limits, Outcome, Program, Sandbox, SandboxSession
from palestra.sandbox.profile import require_boxes
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
    """Runs Python. Lent to many episodes at once; ``for_episode`` gives each its own interpreter.

    Without a ``sandbox`` it uses bubblewrap, and starts an empty box at once: a machine that cannot run boxes raises
    ``MissingExtra`` here, with the remedy, before any episode has begun.
    """

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
        if sandbox is None:
            require_boxes(self._limits)
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
        self._session: SandboxSession | None = None
        self.waiting_since: float | None = None
        """The loop's time since when the current call has waited for the machine: for a box, or for its place to run."""
        self._held = contextlib.AsyncExitStack()
        self._turn = asyncio.Lock()

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        async with self._turn:  # one interpreter runs one cell at a time, in the order they were written
            self.waiting_since = asyncio.get_running_loop().time()
            try:
                return await self._run(**arguments)
            finally:
                self._begun()

    def _begun(self) -> None:
        self.waiting_since = None

    async def _run(self, code: str) -> ToolResult:
        if self._sandbox is None:
            self._sandbox = await self._held.enter_async_context(shared_sandbox(self._limits))
        if not self._stateful:
            program = Program(code=code, wall_seconds=self._limits.wall_seconds)
            return _told(await self._sandbox.run(program, begun=self._begun), "")
        note = ""
        if self._session is None or not self._session.alive:
            note = "" if self._session is None else "(The interpreter was restarted; earlier variables are lost.)\n"
            self._session = await self._reopened(self._sandbox)
        return _told(await self._session.run(code, wall_seconds=self._limits.wall_seconds, begun=self._begun), note)

    async def _reopened(self, sandbox: Sandbox) -> SandboxSession:
        if self._session is not None:
            await self._session.close()
        return await sandbox.open_session()

    async def close(self) -> None:
        """End the interpreter."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        self._sandbox = None
        await self._held.aclose()


def _told(outcome: Outcome, note: str) -> ToolResult:
    printed = outcome.text.rstrip("\n")
    if outcome.dropped_output:
        printed += f"\n[{outcome.dropped_output} more bytes were printed]"
    if outcome.killed_by is not None:
        return ToolResult(f"{note}{printed}\n[stopped: {_WHY[outcome.killed_by]}]".lstrip("\n"), ok=False)
    return ToolResult(note + (printed or "(no output)"), ok=outcome.ok)
