"""What an action of a terminal world means: a command, keys for the running program, an interrupt, or the end.

A command stands in a fenced block (```` ```bash ````, ``sh``, ``shell``, ``console`` or without a language), or is the argument
``command`` of a call of the tool ``bash``. If there are several blocks, the last one counts. The block ``submit`` alone, or a
call of the tool ``submit``, ends the episode. ``^C`` alone interrupts the program that runs.
"""

from typing import NamedTuple

from palestra.grading import fenced_code
from palestra.tools import find_calls
from palestra.trajectory.calls import BadCall

__all__ = ["Command", "read_action"]

_LANGUAGES = ("bash", "sh", "shell", "console", "")
_LONGEST = 100_000


class Command(NamedTuple):
    """What the agent wants."""

    text: str = ""
    submit: bool = False
    interrupt: bool = False
    problem: str = ""
    """Why the action is not a command, for the agent."""


def read_action(action: str) -> Command:
    """Return what ``action`` means."""
    if len(action) > _LONGEST:
        return Command(problem=f"The message has more than {_LONGEST} characters.")
    calls = find_calls(action)
    if calls:
        return _of_call(calls[0], len(calls))
    block = fenced_code(action, *_LANGUAGES)
    if block is None:
        return Command(problem="There is no command in your message. Write one ```bash block, or call the tool bash.")
    return _of_text(block)


def _of_call(call: object, count: int) -> Command:
    if count > 1:
        return Command(problem="Make one call per message.")
    if isinstance(call, BadCall):
        return Command(problem=call.error)
    name, arguments = getattr(call, "name", ""), getattr(call, "arguments", {})
    if name == "submit":
        return Command(submit=True)
    command = arguments.get("command")
    if name != "bash" or not isinstance(command, str):
        return Command(problem='There are two tools: bash with the argument "command", and submit.')
    return _of_text(command)


def _of_text(text: str) -> Command:
    bare = text.strip()
    if bare == "submit":
        return Command(submit=True)
    if bare in ("^C", "C-c"):
        return Command(interrupt=True)
    return Command(text.strip("\n"))
