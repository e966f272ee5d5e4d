"""The text form of a tool call, ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, and of a tool's result.

An action is text, so a call is text too. Models that write calls in another form (native function calls of chat APIs, the
markup of other model families) are translated to and from this one where their text enters; no other code knows other forms.
All text around the calls is prose.

Parsing never fails: text that looks like a call but is not becomes a ``BadCall`` whose message the agent receives. Two habits
of models are accepted, because neither is ambiguous: ``parameters`` for ``arguments``, and arguments written as JSON inside a
string. A field of any other name is refused: a call whose ``args`` were ignored would run without them.

A result is the text between ``<tool_response name="…">`` and ``</tool_response>``. An observation that answers several calls
has one such element per call, in the order of the calls. The step's ``info["role"]`` is then ``"tool"``, and so is the
message's role. Renderers and chat policies translate it to the model's own form; a model without one reads the text itself.
"""

import json
import re
from typing import Any, NamedTuple, TypeVar

import msgspec

from palestra.trajectory import ToolCall, ToolResult

__all__ = [
    "CLOSE",
    "OPEN",
    "BadCall",
    "CallResult",
    "ParsedText",
    "call_end",
    "format_call",
    "format_result",
    "parse_calls",
    "parse_results",
    "read_arguments",
    "read_call",
    "sealed",
]

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_Read = TypeVar("_Read")


class BadCall(NamedTuple):
    """Text between the tags that is not a call."""

    text: str
    error: str
    """One sentence for the agent that names the problem."""


class ParsedText(NamedTuple):
    """A text, split into prose and calls."""

    prose: str
    """The text outside the calls."""
    calls: tuple[ToolCall | BadCall, ...]
    """The calls in the order in which they were written."""


class _WrittenCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | str | None = None
    parameters: dict[str, Any] | str | None = None
    id: str = ""


def format_call(call: ToolCall) -> str:
    """Return ``call`` as text. ``parse_calls`` reads it back unchanged for all arguments."""
    body: dict[str, Any] = {"name": call.name, "arguments": call.arguments}
    if call.id:
        body["id"] = call.id
    # "<" inside a string is escaped, so that a closing tag among the arguments does not end the call.
    return f"{OPEN}{json.dumps(body, ensure_ascii=False).replace('<', chr(92) + 'u003c')}{CLOSE}"


def parse_calls(text: str) -> ParsedText:
    """Return the calls in ``text``, good and bad, and the prose around them. Linear in the length of the text."""
    prose: list[str] = []
    calls: list[ToolCall | BadCall] = []
    position = 0
    while (start := text.find(OPEN, position)) != -1:
        prose.append(text[position:start])
        body_start = start + len(OPEN)
        end = call_end(text, body_start)
        if end == -1:
            calls.append(BadCall(text[body_start:], f"the tool call is not closed by {CLOSE}."))
            return ParsedText("".join(prose).strip(), tuple(calls))
        calls.append(read_call(text[body_start:end]))
        position = end + len(CLOSE)
    prose.append(text[position:])
    return ParsedText("".join(prose).strip() if calls else text, tuple(calls))


_JSON_TOKEN = re.compile(r'[ \t\r\n]*(?:([{}\[\]])|[:,]|"(?:[^"\\]|\\.)*"|[-+.0-9a-zA-Z]+)')
_CLOSING = re.compile(r"[ \t\r\n]*" + re.escape(CLOSE))


def call_end(text: str, start: int) -> int:
    """Return where the closing tag of the call stands whose body begins at ``start``; -1 if there is none.

    That is the first closing tag, unless it stands inside a string of the call's JSON. All calls of a text together take linear
    time, because an opening tag outside of a string ends the search for the end of the JSON.
    """
    end = text.find(CLOSE, start)
    if end == -1 or _is_json(text[start:end]):
        return end
    position, depth = start, 0
    while (token := _JSON_TOKEN.match(text, position)) is not None:
        position = token.end()
        if token[1]:
            depth += 1 if token[1] in "{[" else -1
        if depth <= 0:
            break
    closing = _CLOSING.match(text, position)
    return end if closing is None or depth or position < end else closing.end() - len(CLOSE)


def _is_json(body: str) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def read_call(body: str) -> ToolCall | BadCall:
    """Return the call that ``body``, the text between the tags, describes."""
    call = _decode(body, _WrittenCall)
    if isinstance(call, BadCall):
        return call
    written = call.parameters if call.arguments is None else call.arguments
    arguments = read_arguments(written) if isinstance(written, str) else written or {}
    return arguments if isinstance(arguments, BadCall) else ToolCall(call.name, arguments, call.id)


def read_arguments(written: str) -> dict[str, Any] | BadCall:
    """Return the arguments of a call, for forms that write them alone."""
    return _decode(written, dict[str, Any])


def _decode(written: str, kind: type[_Read]) -> _Read | BadCall:
    try:
        return msgspec.json.decode(written, type=kind)
    # A lone surrogate cannot be encoded, so it is not JSON either.
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        return BadCall(written, f'the tool call is not {{"name": …, "arguments": {{…}}}}: {error}.')


# ---------------------------------------------------------------------------------------------------------------- results


class CallResult(NamedTuple):
    """The result of one call."""

    name: str
    """The tool's name; empty if the text does not name it."""
    text: str
    ok: bool = True
    call: str = ""
    """The id of the call, if the model gave it one."""

    @property
    def full_text(self) -> str:
        """The text for a form that has no field for ``ok``."""
        return self.text if self.ok else f"Error: {self.text}"


_RESULT_OPEN = re.compile(r'<tool_response name="([^"<>]*)"(?: id="([^"<>]*)")?( status="error")?>\n')
_RESULT_CLOSE = "\n</tool_response>"


def format_result(name: str, result: ToolResult, call: str = "") -> str:
    """Return the text that the model sees of ``result``. The result's own text cannot close the tag around it."""
    ident = f' id="{_attribute(call)}"' if call else ""
    status = "" if result.ok else ' status="error"'
    return f'<tool_response name="{_attribute(name)}"{ident}{status}>\n{sealed(result.text)}{_RESULT_CLOSE}'


def parse_results(text: str) -> tuple[CallResult, ...]:
    """Return the results in ``text``, as written by ``format_result``; any other text is one result. Linear in its length."""
    results: list[CallResult] = []
    position = 0
    while (opened := _RESULT_OPEN.match(text, position)) is not None:
        end = text.find(_RESULT_CLOSE, opened.end())
        if end == -1:
            break
        name, call, failed = opened.groups()
        results.append(CallResult(name, _unsealed(text[opened.end() : end]), failed is None, call or ""))
        position = end + len(_RESULT_CLOSE)
        if position == len(text):
            return tuple(results)
        if text[position] != "\n":
            break
        position += 1
    return (CallResult("", text),)


def sealed(text: str) -> str:
    """Return ``text`` without ``</tool_response``, for forms that end a result with that tag."""
    return re.sub(r"<(\\*)/tool_response", r"<\\\1/tool_response", text)


def _unsealed(text: str) -> str:
    return re.sub(r"<\\(\\*)/tool_response", r"<\1/tool_response", text)


def _attribute(name: str) -> str:
    return "".join(mark if mark.isalnum() or mark in "_-.:/" else "_" for mark in name[:64])
