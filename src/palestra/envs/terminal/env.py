"""The environment of all terminal worlds: a family draws the task, a shell in a box plays it, a grader outside judges it.

The reward is 1 if the grader accepts the result, else 0.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from palestra.core import Step
from palestra.envs.terminal.families import FAMILIES
from palestra.envs.terminal.scene import HOME, LEVELS, Scene
from palestra.envs.terminal.turns import HOW, ShellEnv
from palestra.errors import UsageError
from palestra.sandbox.layers import Entry, NewFile
from palestra.sandbox.shell import Shell, Shells, shared_shells
from palestra.trajectory import Task

__all__ = ["Terminal"]

_FILE_BYTES = 4 * 2**20


class Terminal(ShellEnv):
    """One family at one level.

    Args:
        family: A name of ``FAMILIES``.
        level: ``easy``, ``medium`` or ``hard``.
        max_turns: The result is judged after this number of turns.
        command_seconds: A command that takes longer returns what it has printed.
    """

    reward_range = (0.0, 1.0)

    def __init__(self, family: str, level: str = "easy", max_turns: int = 20, command_seconds: float = 10.0) -> None:
        if family not in FAMILIES or level not in LEVELS:
            raise UsageError(f"no terminal family {family!r} at level {level!r}: {', '.join(FAMILIES)}; {', '.join(LEVELS)}")
        super().__init__(max_turns, command_seconds)
        self._family = family
        self._level = LEVELS.index(level)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        self._scene: Scene = FAMILIES[self._family](self.rng, self._level)
        self._forget()
        self._plan = [_from_home(command) for command in self._scene.solution]
        await self._close_shell()
        if self._shells is None:
            self._shells = await self._stack.enter_async_context(shared_shells())
        self._shell = await self._shells.open(self._scene.files)
        if self._scene.setup:
            await self._shell.run(self._scene.setup)
        self._first = {(process.pid, process.started) for process in self._shell.processes()} if self._scene.setup else set()
        how = HOW.format(home=f"/{HOME}", turns=self.max_turns)
        return f"{how}\n\n{self._scene.goal}", {"max_turns": self.max_turns}

    async def _judged(self, shown: str, info: dict[str, Any]) -> Step:
        assert self._shell is not None
        assert self._shells is not None
        verdict = self._scene.check(_FinalState(self._shell, self._shells, self._first))
        right = bool(await verdict if inspect.isawaitable(verdict) else verdict)
        return Step(shown, float(right), True, False, {**info, "success": right})

    async def fork(self) -> "Terminal":
        assert self._shell is not None
        assert self._shells is not None
        twin = Terminal(self._family, LEVELS[self._level], self.max_turns, self._seconds)
        twin._begin(None, self.task)
        twin._scene, twin._turn, twin._done = self._scene, self._turn, self._done
        twin._screen, twin._first, twin._plan = self._screen, self._first, self._plan
        twin._shell = await self._shell.fork()
        twin._shells = await twin._stack.enter_async_context(shared_shells())
        return twin


class _FinalState:
    """The end of an episode, for a grader."""

    def __init__(self, shell: Shell, shells: Shells, first: set[tuple[int, int]]) -> None:
        self._shell = shell
        self._shells = shells
        self._first = first

    def text(self, path: str) -> str | None:
        try:
            return self._shell.fetch(f"{HOME}/{path}")[:_FILE_BYTES].decode()
        except (OSError, UnicodeDecodeError):
            return None

    def tree(self, folder: str) -> list[Entry]:
        cut = len(HOME) + 1
        return [entry._replace(path=entry.path[cut:]) for entry in self._shell.tree(f"{HOME}/{folder}".rstrip("/"))]

    def processes(self) -> list[list[str]]:
        return [process.words for process in self._shell.processes()]

    def first_processes(self) -> list[list[str]]:
        return [process.words for process in self._shell.processes() if (process.pid, process.started) in self._first]

    async def fresh(self, files: Sequence[NewFile], command: str, seconds: float = 20.0) -> str:
        async with await self._shells.open(files) as shell:
            outcome = await shell.run(command, wall_seconds=seconds)
            return "" if outcome.running or outcome.ended else outcome.text


def _from_home(command: str) -> str:
    return f"cd\n{command}"
