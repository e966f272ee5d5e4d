"""The actions of an agent in a browser, and the one parser for their two forms.

In brackets, as WebArena writes them, the last line of a message is the action: ``click [e5]``, ``type [e7] [two words] [1]``.
As a tool call: ``<tool_call>{"name": "click", "arguments": {"element": "e5"}}</tool_call>``. A message that has a call is not
searched for brackets. Both forms become an ``Action``; a message that is neither becomes one with a ``problem``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palestra.authoring.action_line import action_line
from palestra.tools import find_calls
from palestra.trajectory.calls import BadCall

__all__ = ["ACTIONS", "Action", "described", "read_action"]

_MOST_TEXT = 20_000
_BRACKETS = re.compile(r"\s*\[([^\[\]]*)\]")
_REF = re.compile(r"e\d{1,6}")
_TAB = re.compile(r"\d{1,3}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d{1,3})?")


@dataclass(frozen=True)
class Action:
    """What to do in the browser."""

    name: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    """Why the message is no action: a sentence for the agent."""


ACTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "click": (("element",), "clicks an element"),
    "double_click": (("element",), "clicks an element twice"),
    "type": (("element", "text", "enter"), "replaces the content of a field; enter 1 then presses Enter, 0 does not"),
    "select": (("element", "option"), "chooses an option of a list by its text"),
    "press": (("keys",), "presses keys, such as Enter or Control+a"),
    "hover": (("element",), "moves the mouse over an element"),
    "drag": (("element", "target"), "drags an element onto another"),
    "scroll": (("direction",), "scrolls the page down or up"),
    "click_at": (("x", "y"), "clicks at a point, in pixels from the left and the top"),
    "drag_at": (("x", "y", "to_x", "to_y"), "drags from one point to another"),
    "wait": ((), "waits for half a second"),
    "goto": (("address",), "opens an address"),
    "go_back": ((), "opens the page before this one"),
    "go_forward": ((), "opens the page from which go_back has come"),
    "new_tab": ((), "opens an empty tab"),
    "tab_focus": (("tab",), "shows the tab with this number"),
    "close_tab": ((), "closes the tab that is shown"),
    "stop": (("answer",), "ends the episode; put the answer into the brackets, or nothing if the task asks for none"),
}
"""Name → the names of its arguments in order, and what it does."""
_OPTIONAL = frozenset({"enter", "answer"})
_REFS = frozenset({"element", "target"})
_NUMBERS = frozenset({"x", "y", "to_x", "to_y"})


def described(names: tuple[str, ...]) -> str:
    """Return one line per action, for the first observation."""
    return "\n".join(f"{_form(name)}: {ACTIONS[name][1]}" for name in names)


def _form(name: str) -> str:
    return " ".join([name, *(f"[{argument}]" for argument in ACTIONS[name][0])])


def read_action(message: str, names: tuple[str, ...] = tuple(ACTIONS), ids: "re.Pattern[str]" = _REF) -> Action:
    """Return the action in ``message``, one of ``names``. ``ids`` is the form of the ids of elements."""
    calls = find_calls(message)
    if calls:
        call = calls[-1]
        if isinstance(call, BadCall):
            return Action(problem=f"The tool call cannot be read: {call.error}")
        return _checked(call.name, {name: _word(value) for name, value in call.arguments.items()}, names, ids)
    line = action_line(message, keep="[]")
    name, _, rest = line.partition("[")
    name = name.strip().lower()
    if name not in names:
        return Action(problem=f"There is no action {name[:40]!r}. The actions are: {', '.join(names)}.")
    return _checked(name, _bracketed(name, f"[{rest}" if rest else ""), names, ids)


def _bracketed(name: str, rest: str) -> dict[str, str]:
    wanted = ACTIONS[name][0]
    if name == "type":  # its text may contain brackets
        first = _BRACKETS.match(rest)
        if first is None:
            return {}
        text, enter = rest[first.end() :].strip(), "0"
        last = re.search(r"\s*\[(?:press_enter_after=)?([01])\]$", text)
        if last is not None and last.start() > 0:
            text, enter = text[: last.start()], last[1]
        inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        return {"element": first[1].strip(), "text": inside, "enter": enter}
    if len(wanted) == 1:
        return {wanted[0]: rest[1:].removesuffix("]").strip()} if rest else {}
    return dict(zip(wanted, (value.strip() for value in _BRACKETS.findall(rest)), strict=False))


def _word(value: Any) -> str:
    if isinstance(value, dict | list):  # an answer in JSON
        return json.dumps(value, ensure_ascii=False)
    return str(int(value)) if isinstance(value, bool) else str(value)


def _checked(name: str, arguments: Mapping[str, str], names: tuple[str, ...], ids: "re.Pattern[str]") -> Action:
    if name not in names:
        return Action(problem=f"There is no action {name[:40]!r}. The actions are: {', '.join(names)}.")
    wanted = ACTIONS[name][0]
    missing = [argument for argument in wanted if argument not in arguments and argument not in _OPTIONAL]
    if missing or set(arguments) - set(wanted):
        return Action(problem=f"The action {name} has another form: {_form(name)}.")
    for argument in arguments:
        if argument in _REFS and not ids.fullmatch(arguments[argument]):
            return Action(
                problem=f"{arguments[argument][:40]!r} is not the id of an element{', such as e5' if ids is _REF else ''}."
            )
        if argument == "tab" and not _TAB.fullmatch(arguments[argument]):
            return Action(problem=f"{arguments[argument][:40]!r} is not the number of a tab.")
        if argument in _NUMBERS and not _NUMBER.fullmatch(arguments[argument]):
            return Action(problem=f"{arguments[argument][:40]!r} is not a number.")
    if name == "scroll" and arguments["direction"] not in ("up", "down"):
        return Action(problem="The direction of scroll is up or down.")
    if sum(map(len, arguments.values())) > _MOST_TEXT:
        return Action(problem=f"The action has more than {_MOST_TEXT} characters.")
    return Action(name, dict(arguments))
