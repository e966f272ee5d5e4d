"""The turns of an episode in a shell: what the agent writes, what the terminal shows, and when the result is judged.

The agent sees what the terminal shows after each command, and the exit code if it is not 0. If a command takes longer than
``command_seconds``, the agent sees what it has printed so far. The next block is then typed into the running program; ``^C``
interrupts it. A command that replaces the shell, such as ``exec bash``, returns within a second. ``submit`` ends the episode,
and so does the last turn.

Observations are the same for the same task and actions, except for what the agent asks the machine: times and process ids.
``normalized`` replaces these.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from html import escape
from typing import Any, Generic, TypeVar

from palestra.core import AsyncEnv, Step
from palestra.sandbox.screen import shortened
from palestra.sandbox.shell import MOST_COMMAND_BYTES, Shell, ShellOutcome, Shells
from palestra.worlds.terminal.actions import Command, read_action

__all__ = ["HOW", "Attempt", "ShellEnv", "normalized"]

SHOWN_CHARACTERS = 8_000
HOW = (
    "You work in a terminal: bash in {home}, without network. Write one command (or a short script) per message, in a block "
    "that begins with ```bash and ends with ```. You see what the terminal shows. When you are done, write a block that "
    "contains only `submit`. You have {turns} messages; after the last one, the result is judged in any case."
)
"""What an agent reads before its task."""
_LOOKS = ("ls -A", "pwd", "cat README.md", "find . -type f | sort | head", "wc -c *", "id -un", "true", "echo hello", "false")


class Attempt:
    """One episode: its shell, what was typed and shown, and what the oracle is going to type."""

    def __init__(self, shell: Shell, plan: Sequence[str] = ()) -> None:
        self.shell = shell
        self.turn = 0
        self.screen = ""
        self.plan = plan
        """The commands of the oracle."""
        self.done = 0
        """How many commands of the plan the agent has run."""


A = TypeVar("A", bound=Attempt)


class ShellEnv(AsyncEnv, Generic[A]):
    """An environment whose actions are commands for a shell in a box. A subclass opens the shell and judges the end.

    Args:
        max_turns: The result is judged after this number of turns.
        command_seconds: A command that takes longer returns what it has printed.
    """

    counts_turns = True
    max_turns: int

    def __init__(self, max_turns: int, command_seconds: float) -> None:
        self.max_turns = max_turns
        self._seconds = command_seconds
        self._stack = AsyncExitStack()
        self._shells: Shells | None = None
        self._current: A | None = None

    @property
    def _attempt(self) -> A:
        """The episode that is played."""
        assert self._current is not None, "there is no episode: call reset() first"
        return self._current

    async def step(self, action: str) -> Step:
        attempt = self._attempt
        attempt.turn += 1
        command = read_action(action)
        if attempt.done < len(attempt.plan) and command.text == attempt.plan[attempt.done]:
            attempt.done += 1
        if len(command.text.encode(errors="replace")) > MOST_COMMAND_BYTES:
            command = Command(problem=f"The command has more than {MOST_COMMAND_BYTES} bytes.")
        info: dict[str, Any] = {"format_error": True} if command.problem else {}
        last = command.submit or attempt.turn >= self.max_turns
        shown = command.problem if command.problem or command.submit else await self._play(command)
        if not last and attempt.shell.alive:
            return Step(shown, 0.0, False, False, info)
        return await self._judged(shown, info)  # also if the agent has ended its shell: its files are still there

    @abstractmethod
    async def _judged(self, shown: str, info: dict[str, Any]) -> Step:
        """Return the step after the agent's last turn."""

    async def _play(self, command: Command) -> str:
        attempt = self._attempt
        if command.interrupt:
            outcome = await attempt.shell.interrupt()
        elif attempt.shell.running:
            outcome = await attempt.shell.send(f"{command.text}\n")
        else:
            outcome = await attempt.shell.run(command.text, wall_seconds=self._seconds)
        typed = "^C" if command.interrupt else command.text
        attempt.screen = f"{attempt.screen}$ {typed}\n{outcome.text}"[-40_000:]
        return _shown(outcome, self._seconds)

    async def oracle(self) -> str:
        left = self._attempt.plan[self._attempt.done :]
        return f"```bash\n{left[0] if left else 'submit'}\n```"

    async def sample_random_action(self) -> str:
        """Return a command that looks around, or the end."""
        choice = int(self.action_rng.integers(len(_LOOKS) + 1))
        return f"```bash\n{(*_LOOKS, 'submit')[choice]}\n```"

    async def _leave(self) -> None:
        """Forget the episode before this one, and close its shell."""
        attempt, self._current = self._current, None
        if attempt is not None:
            await attempt.shell.close()

    async def close(self) -> None:
        if self._current is not None:
            await self._current.shell.close()  # the attempt stays: people may still look at its screen
        self._shells = None
        await self._stack.aclose()

    def render(self) -> str:
        """Return the screen of the episode as HTML for people."""
        style = "background:#111;color:#ddd;padding:1em;white-space:pre-wrap;font:13px monospace"
        return f'<div style="{style}">{escape(self._current.screen if self._current else "")}</div>'


def _shown(outcome: ShellOutcome, seconds: float) -> str:
    text = shortened(outcome.text, SHOWN_CHARACTERS).rstrip("\n")
    if outcome.replaced:
        note = "[the command has replaced the shell: write input for the new program, or ^C]"
    elif outcome.running:
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
