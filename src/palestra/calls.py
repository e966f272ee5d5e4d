"""The one text form of a tool call: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``.

An action is text, so a call is text too. Models that write calls in another form (native function calls of chat APIs, the
markup of other model families) are translated to and from this one where their text enters, and nothing behind that edge
knows of any other. Whatever stands around the calls is prose.

Reading never fails: what looks like a call and is none comes back as a ``BadCall`` that says what is wrong with it, so that
the agent can be told. Two habits of models are forgiven, since neither is ambiguous: ``parameters`` for ``arguments``, and
arguments written as JSON inside a string. A field of another name is refused: a call whose ``args`` were overlooked would run
without them.
"""

import json
from typing import Any, NamedTuple, TypeVar

import msgspec

from palestra.trajectory import ToolCall

__all__ = ["CLOSE", "OPEN", "BadCall", "ParsedText", "format_call", "parse_calls", "read_arguments", "read_call"]

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_Read = TypeVar("_Read")


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
    arguments: dict[str, Any] | str | None = None
    parameters: dict[str, Any] | str | None = None
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
        calls.append(read_call(text[body_start:end]))
        position = end + len(CLOSE)
    prose.append(text[position:])
    return ParsedText("".join(prose).strip() if calls else text, tuple(calls))


def read_call(body: str) -> ToolCall | BadCall:
    """The call that ``body``, the text between the tags, describes."""
    call = _decode(body, _Call)
    if isinstance(call, BadCall):
        return call
    written = call.parameters if call.arguments is None else call.arguments
    arguments = read_arguments(written) if isinstance(written, str) else written or {}
    return arguments if isinstance(arguments, BadCall) else ToolCall(call.name, arguments, call.id)


def read_arguments(written: str) -> dict[str, Any] | BadCall:
    """The arguments of a call that stand alone, as some forms write them."""
    return _decode(written, dict[str, Any])


def _decode(written: str, kind: type[_Read]) -> _Read | BadCall:
    try:
        return msgspec.json.decode(written, type=kind)
    # A lone surrogate cannot be encoded, and so is no JSON either.
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return BadCall(written, f'the tool call is not {{"name": …, "arguments": {{…}}}}: {error}.')
