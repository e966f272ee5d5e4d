"""The one text form of a tool call: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.

An action is text, so a call is text too. Models that write calls in another form (native function calls of chat APIs, the
markup of other model families) are translated to and from this one where their text enters, and nothing behind that edge
knows of any other. Whatever stands around the calls is prose.

Reading never fails: what looks like a call and is none comes back as a ``BadCall`` that says what is wrong with it, so that
the agent can be told.
"""

import json
from typing import Any, NamedTuple

import msgspec

from palestra.trajectory import ToolCall

__all__ = ["CLOSE", "OPEN", "BadCall", "ParsedText", "format_call", "parse_calls"]

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class BadCall(NamedTuple):
    """Text between the tags that is no call."""

    text: str
    error: str
    """One sentence for the agent."""


class ParsedText(NamedTuple):
    """A text taken apart."""

    prose: str
    """What stands outside the calls."""
    calls: tuple[ToolCall | BadCall, ...]
    """In the order they were written."""


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


def format_call(call: ToolCall) -> str:
    """``call`` as text. ``parse_calls`` reads it back unchanged, whatever its arguments hold."""
    body: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
    if call.id:
        body["id"] = call.id
    # "<" inside a string is written as an escape, so that a closing tag among the arguments does not end the call.
    return f"{OPEN}{json.dumps(body, ensure_ascii=False).replace('<', chr(92) + 'u003c')}{CLOSE}"


def parse_calls(text: str) -> ParsedText:
    """The calls in ``text``, good and bad, and the prose around them. Linear in the length of the text."""
    prose: list[str] = []
    calls: list[ToolCall | BadCall] = []
    position = 0
    while (start := text.find(OPEN, position)) != -1:
        prose.append(text[position:start])
        body_start = start + len(OPEN)
        end = text.find(CLOSE, body_start)
        if end == -1:
            calls.append(BadCall(text[body_start:], f"the tool call is not closed by {CLOSE}."))
            return ParsedText("".join(prose).strip(), tuple(calls))
        calls.append(_read(text[body_start:end]))
        position = end + len(CLOSE)
    prose.append(text[position:])
    return ParsedText("".join(prose).strip() if calls else text, tuple(calls))


def _read(body: str) -> ToolCall | BadCall:
    try:
        call = msgspec.json.decode(body, type=_Call)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return BadCall(body, f'the tool call is not {{"name": …, "arguments": {{…}}}}: {error}.')
    return ToolCall(call.name, call.arguments, call.id)
