"""The environment of all terminal worlds: a family draws the task, a shell in a box plays it, a grader outside judges it.

The agent sees what the terminal shows after each command, and the exit code if it is not 0. If a command takes longer than
``command_seconds``, the agent sees what it has printed so far. The next block is then typed into the running program; ``^C``
interrupts it. ``submit`` ends the episode, and so does the last turn: the reward is 1 if the grader accepts the result, else 0.

Observations are the same for the same task and actions, except for what the agent asks the machine: times and process ids.
``normalized`` replaces these.
"""

import inspect
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from html import escape
from typing import Any

from palestra.core import AsyncEnv, Step
from palestra.envs.terminal.actions import Command, read_action
from palestra.envs.terminal.families import FAMILIES
from palestra.envs.terminal.scene import HOME, LEVELS, Scene
from palestra.errors import UsageError
from palestra.sandbox.layers import Entry, NewFile
from palestra.sandbox.screen import shortened
from palestra.sandbox.shell import MOST_COMMAND_BYTES, Shell, ShellOutcome, Shells, shared_shells
from palestra.trajectory import Task

__all__ = ["Terminal", "normalized"]

SHOWN_CHARACTERS = 8_000
_FILE_BYTES = 4 * 2**20
_HOW = (
    "You work in a terminal: bash in {home}, without network. Write one command (or a short script) per message, in a block "
    "that begins with ```bash and ends with ```. You see what the terminal shows. When you are done, write a block that "
    "contains only `submit`. You have {turns} messages; after the last one, the result is judged in any case."
)
_LOOKS = ("ls -A", "pwd", "cat README.md", "find . -type f | sort | head", "wc -c *", "id -un", "true", "echo hello", "false")


class Terminal(AsyncEnv):
    """One family at one level.

    Args:
        family: A name of ``FAMILIES``.
        level: ``easy``, ``medium`` or ``hard``.
        max_turns: The result is judged after this number of turns.
        command_seconds: A command that takes longer returns what it has printed.
    """

    reward_range = (0.0, 1.0)
    counts_turns = True
    max_turns: int

    def __init__(self, family: str, level: str = "easy", max_turns: int = 20, command_seconds: float = 10.0) -> None:
        if family not in FAMILIES or level not in LEVELS:
            raise UsageError(f"no terminal family {family!r} at level {level!r}: {', '.join(FAMILIES)}; {', '.join(LEVELS)}")
        self._family = family
        self._level = LEVELS.index(level)
        self.max_turns = max_turns
        self._seconds = command_seconds
        self._stack = AsyncExitStack()
        self._shells: Shells | None = None
        self._shell: Shell | None = None
        self._screen = ""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        self._scene: Scene = FAMILIES[self._family](self.rng, self._level)
        self._turn = 0
        self._done = 0
        self._screen = ""
        await self._close_shell()
        if self._shells is None:
            self._shells = await self._stack.enter_async_context(shared_shells())
        self._shell = await self._shells.open(self._scene.files)
        if self._scene.setup:
            await self._shell.run(self._scene.setup)
        self._first = {(process.pid, process.started) for process in self._shell.processes()} if self._scene.setup else set()
        how = _HOW.format(home=f"/{HOME}", turns=self.max_turns)
        return f"{how}\n\n{self._scene.goal}", {"max_turns": self.max_turns}

    async def step(self, action: str) -> Step:
        assert self._shell is not None
        self._turn += 1
        command = read_action(action)
        if self._done < len(self._scene.solution) and command.text == _from_home(self._scene.solution[self._done]):
            self._done += 1
        if len(command.text.encode(errors="replace")) > MOST_COMMAND_BYTES:
            command = Command(problem=f"The command has more than {MOST_COMMAND_BYTES} bytes.")
        info: dict[str, Any] = {"format_error": True} if command.problem else {}
        last = command.submit or self._turn >= self.max_turns
        shown = command.problem if command.problem or command.submit else await self._play(command)
        if not last and self._shell.alive:
            return Step(shown, 0.0, False, False, info)
        right = await self._judge()  # also if the agent has ended its shell: its files are still there
        return Step(shown, float(right), True, False, {**info, "success": right})

    async def _play(self, command: Command) -> str:
        assert self._shell is not None
        if command.interrupt:
            outcome = await self._shell.interrupt()
        elif self._shell.running:
            outcome = await self._shell.send(f"{command.text}\n")
        else:
            outcome = await self._shell.run(command.text, wall_seconds=self._seconds)
        typed = "^C" if command.interrupt else command.text
        self._screen = f"{self._screen}$ {typed}\n{outcome.text}"[-40_000:]
        return _shown(outcome, self._seconds)

    async def _judge(self) -> bool:
        assert self._shell is not None
        assert self._shells is not None
        verdict = self._scene.check(_FinalState(self._shell, self._shells, self._first))
        return bool(await verdict if inspect.isawaitable(verdict) else verdict)

    async def oracle(self) -> str:
        left = self._scene.solution[self._done :]
        return f"```bash\n{_from_home(left[0]) if left else 'submit'}\n```"

    async def sample_random_action(self) -> str:
        """Return a command that looks around, or the end."""
        choice = int(self.action_rng.integers(len(_LOOKS) + 1))
        return f"```bash\n{(*_LOOKS, 'submit')[choice]}\n```"

    async def fork(self) -> "Terminal":
        assert self._shell is not None
        assert self._shells is not None
        twin = Terminal(self._family, LEVELS[self._level], self.max_turns, self._seconds)
        twin._begin(None, self.task)
        twin._scene, twin._turn, twin._done = self._scene, self._turn, self._done
        twin._screen, twin._first = self._screen, self._first
        twin._shell = await self._shell.fork()
        twin._shells = await twin._stack.enter_async_context(shared_shells())
        return twin

    async def _close_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            await shell.close()

    async def close(self) -> None:
        await self._close_shell()
        self._shells = None
        await self._stack.aclose()

    def render(self) -> str:
        """Return the screen of the episode as HTML for people."""
        return f'<pre style="background:#111;color:#ddd;padding:1em">{escape(self._screen)}</pre>'


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


def _shown(outcome: ShellOutcome, seconds: float) -> str:
    text = shortened(outcome.text, SHOWN_CHARACTERS).rstrip("\n")
    if outcome.running:
        note = f"[still running after {seconds:g} s: write input for it, or ^C]"
    elif outcome.ended:
        note = f"[the shell has ended{f': {outcome.killed_by}' if outcome.killed_by else ''}]"
    else:
        note = f"[exit code {outcome.exit_code}]" if outcome.exit_code else ""
    return "\n".join(part for part in (text, note) if part) or "[no output]"


_TIMES = re.compile(
    r"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d+ +[\d:]+\b"
)
_STAMPS = re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?")
_CLOCKS = re.compile(r"\b\d{1,2}:\d\d:\d\d\b|\b(?:\d+m)?\d+(?:\.\d+)?s\b")
_JOBS = re.compile(r"(?m)^(\[\d+\]) \d+$")


def normalized(text: str) -> str:
    """Return an observation with dates, times, durations and process ids of jobs replaced by fixed words."""
    for pattern, word in ((_TIMES, "TIME"), (_STAMPS, "TIME"), (_CLOCKS, "TIME"), (_JOBS, r"\1 PID")):
        text = pattern.sub(word, text)
    return text
