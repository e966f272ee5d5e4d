"""The environment of all terminal worlds: a family draws the task, a shell in a box plays it, a grader outside judges it.

The reward is 1 if the grader accepts the result, else 0.
"""

import copy
from collections.abc import Sequence
from typing import Any

from palestra.core import Step
from palestra.errors import UsageError
from palestra.foundation.seeding import derive
from palestra.sandbox.layers import NewFile
from palestra.sandbox.shell import Shell, Shells, shared_shells
from palestra.trajectory import Task
from palestra.worlds.terminal.families import FAMILIES, FLOORS
from palestra.worlds.terminal.grading import RUN_SECONDS, Found, all_right
from palestra.worlds.terminal.scene import HOME, LEVELS, Scene
from palestra.worlds.terminal.turns import HOW, Attempt, ShellEnv

__all__ = ["Terminal"]


class _Attempt(Attempt):
    """One episode: the task that was drawn, too."""

    def __init__(self, shell: Shell, scene: Scene) -> None:
        super().__init__(shell, [f"cd\n{command}" for command in scene.solution])  # its commands are written for the home
        self.scene = scene
        self.first: frozenset[tuple[int, int]] = frozenset()
        """The processes that ran before the agent's first turn: their numbers and when they were started."""


class Terminal(ShellEnv[_Attempt]):
    """One family at one level.

    Args:
        family: A name of ``FAMILIES``.
        level: ``easy``, ``medium`` or ``hard``.
        max_turns: The result is judged after this number of turns.
        command_seconds: A command that takes longer returns what it has printed.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)

    def __init__(self, family: str, level: str = "easy", max_turns: int = 20, command_seconds: float = 10.0) -> None:
        if family not in FAMILIES or level not in LEVELS:
            raise UsageError(f"no terminal family {family!r} at level {level!r}: {', '.join(FAMILIES)}; {', '.join(LEVELS)}")
        super().__init__(max_turns, command_seconds)
        self._family = family
        self._level = LEVELS.index(level)

    @property
    def floor(self) -> float:
        return FLOORS[self._family][self._level] if self._family in FLOORS else 0.0

    def scene_of(self, task: Task) -> Scene:
        """Return what ``reset(task=task)`` plays."""
        return FAMILIES[self._family](derive(task.seed, task.key), self._level)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        scene = self.scene_of(self.task)
        await self._leave()
        if self._shells is None:
            self._shells = await self._stack.enter_async_context(shared_shells())
        attempt = self._current = _Attempt(await self._shells.open(scene.files), scene)
        if scene.setup:
            await attempt.shell.run(scene.setup)
            attempt.first = frozenset((process.pid, process.started) for process in attempt.shell.processes())
        how = HOW.format(home=f"/{HOME}", turns=self.max_turns)
        return f"{how}\n\n{scene.goal}", {"max_turns": self.max_turns}

    async def _judged(self, shown: str, info: dict[str, Any]) -> Step:
        assert self._shells is not None
        attempt = self._attempt
        right = await all_right(attempt.scene.checks, _FinalState(attempt.shell, self._shells, attempt.first))
        return Step(shown, float(right), True, False, {**info, "success": right})

    async def fork(self) -> "Terminal":
        attempt = self._attempt
        twin = Terminal(self._family, LEVELS[self._level], self.max_turns, self._seconds)
        twin._begin(None, self.task)
        twin._action_rng = copy.deepcopy(self._action_rng)
        try:
            shell = await attempt.shell.fork()
            twin._current = copy.copy(attempt)
            twin._current.shell = shell
            twin._shells = await twin._stack.enter_async_context(shared_shells())
        except BaseException:
            await twin.close()
            raise
        return twin


class _FinalState:
    """The end of an episode, for a grader."""

    def __init__(self, shell: Shell, shells: Shells, first: frozenset[tuple[int, int]]) -> None:
        self._shell = shell
        self._shells = shells
        self._first = first

    def data(self, path: str) -> bytes | None:
        try:
            return self._shell.fetch(f"{HOME}/{path}")
        except OSError:
            return None

    def tree(self, folder: str) -> list[Found]:
        cut = len(HOME) + 1
        return [Found(entry.path[cut:], entry.mode, entry.content) for entry in self._shell.tree(f"{HOME}/{folder}")]

    def processes(self) -> list[list[str]]:
        return [process.words for process in self._shell.processes()]

    def first_processes(self) -> list[list[str]]:
        return [process.words for process in self._shell.processes() if (process.pid, process.started) in self._first]

    async def fresh(self, files: Sequence[Found], command: str) -> str | None:
        placed = [NewFile(f"{HOME}/{file.path}", file.content or b"", file.mode & 0o777) for file in files]
        async with await self._shells.open(placed) as shell:
            outcome = await shell.run(command, wall_seconds=RUN_SECONDS)
            return None if outcome.running or outcome.ended else outcome.text
