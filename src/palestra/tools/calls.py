"""A tool call as text: one canonical form, and the forms that models write.

The canonical form is ``palestra.calls``'s: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` (Hermes, Qwen). Where an
environment lends tools, models may be allowed to write calls in other forms too; this module reads all of them.

Reading is total and linear: any text gives a list of calls and of attempts that failed, each with a sentence for the model. An
attempt that cannot be read is never mistaken for an ordinary action. What stands in ``<think>`` is a thought, not a call.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from palestra.calls import format_call
from palestra.trajectory import ToolCall, ToolResult

__all__ = ["CallForm", "MalformedCall", "ParsedCalls", "format_call", "format_result", "parse_calls"]


class CallForm(StrEnum):
    """How a model writes a call."""

    TOOL_CALL = "tool_call"
    """``<tool_call>{json}</tool_call>``, the canonical form, and GEM's ``<tool_name>``/``<arguments>`` inside the same tag."""
    PYTHON_FENCE = "python_fence"
    """A fenced block marked ``python`` or ``py``: a call of the tool ``python``."""
    PYTHON_TAG = "python_tag"
    """``<python>code</python>``."""
    SEARCH_TAG = "search_tag"
    """``<search>query</search>``: a call of the tool ``search``."""


class MalformedCall(msgspec.Struct, frozen=True):
    """Something that was meant as a call and cannot be read."""

    problem: str
    """What is wrong with it, in words for the model."""


class ParsedCalls(NamedTuple):
    """Everything in a text that was meant as a call, in the order it stands there."""

    attempts: tuple[ToolCall | MalformedCall, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The attempts that can be carried out."""
        return tuple(attempt for attempt in self.attempts if isinstance(attempt, ToolCall))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the others."""
        return tuple(attempt.problem for attempt in self.attempts if isinstance(attempt, MalformedCall))


def format_result(name: str, result: ToolResult) -> str:
    """What the model is shown of ``result``. The text cannot close the tag it stands in."""
    text = result.text.replace("</tool_response", "<\\/tool_response")
    status = "" if result.ok else ' status="error"'
    return f'<tool_response name="{_attribute(name)}"{status}>\n{text}\n</tool_response>'


def parse_calls(text: str, forms: Collection[CallForm] = (CallForm.TOOL_CALL,)) -> ParsedCalls:
    """Every call in ``text`` written in one of ``forms``, and every failed attempt at one."""
    attempts: list[ToolCall | MalformedCall] = []
    position = 0
    openings: dict[str, CallForm | None] = {opening: form for form in forms for opening in _OPENINGS[form]}
    openings["<think>"] = None
    nearest = _Nearest(text, openings)
    while (hit := nearest.from_(position)) is not None:
        start, opening = hit
        form = openings[opening]
        inside = start + len(opening)
        if form is None:
            end = text.find("</think>", inside)
            position = len(text) if end == -1 else end + len("</think>")
            continue
        attempt, position = _READERS[form](text, inside)
        attempts.append(attempt)
    return ParsedCalls(tuple(attempts))


# ------------------------------------------------------------------------------------------------------------- the scan


class _Nearest:
    """The next of several openings. Each is searched for once per occurrence, so the whole scan is linear."""

    def __init__(self, text: str, openings: Collection[str]) -> None:
        self._text = text
        self._next = {opening: text.find(opening) for opening in openings}

    def from_(self, position: int) -> tuple[int, str] | None:
        best: tuple[int, str] | None = None
        for opening, found in self._next.items():
            if -1 < found < position:
                found = self._next[opening] = self._text.find(opening, position)
            if found != -1 and (best is None or found < best[0]):
                best = (found, opening)
        return best


def _read_tool_call(text: str, inside: int) -> tuple[ToolCall | MalformedCall, int]:
    end = text.find("</tool_call>", inside)
    if end == -1:
        return MalformedCall("a <tool_call> was opened and never closed with </tool_call>"), len(text)
    body = text[inside:end].strip()
    read = _read_gem if body.startswith("<tool_name>") else _read_json
    return read(body), end + len("</tool_call>")


def _read_json(body: str) -> ToolCall | MalformedCall:
    value = _decode(body)
    if isinstance(value, MalformedCall):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return MalformedCall('a tool call is a JSON object with a "name" and "arguments"')
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # some models write the arguments as JSON inside a string
        arguments = _decode(arguments)
        if isinstance(arguments, MalformedCall):
            return arguments
    if not isinstance(arguments, dict):
        return MalformedCall('"arguments" of a tool call must be a JSON object')
    id = value.get("id", "")
    return ToolCall(value["name"], arguments, id if isinstance(id, str) else "")


def _read_gem(body: str) -> ToolCall | MalformedCall:
    name, closed, rest = body.removeprefix("<tool_name>").partition("</tool_name>")
    rest = rest.strip()
    if not closed or not rest.startswith("<arguments>") or not rest.endswith("</arguments>"):
        return MalformedCall("write <tool_name>…</tool_name><arguments>{json}</arguments> inside <tool_call>")
    written = rest.removeprefix("<arguments>").removesuffix("</arguments>").strip()
    arguments = _decode(written) if written else {}
    if isinstance(arguments, MalformedCall):
        return arguments
    if not isinstance(arguments, dict):
        return MalformedCall("<arguments> must hold a JSON object")
    return ToolCall(name.strip(), arguments)


def _decode(written: str) -> Any:
    try:
        return msgspec.json.decode(written)
    except RecursionError:
        return MalformedCall("the JSON of the tool call is nested too deeply")
    except (msgspec.MsgspecError, ValueError) as error:
        return MalformedCall(f"the tool call is not valid JSON: {error}")


def _read_fence(text: str, inside: int) -> tuple[ToolCall | MalformedCall, int]:
    end = text.find("\n```", inside - 1)  # the newline before the closing fence may be the one that ends the opening line
    if end == -1:
        return MalformedCall("a ```python block was opened and never closed with ```"), len(text)
    return _code_call(text[inside:end]), end + len("\n```")


def _read_python_tag(text: str, inside: int) -> tuple[ToolCall | MalformedCall, int]:
    end = text.find("</python>", inside)
    if end == -1:
        return MalformedCall("a <python> was opened and never closed with </python>"), len(text)
    return _code_call(text[inside:end].strip("\n")), end + len("</python>")


def _read_search_tag(text: str, inside: int) -> tuple[ToolCall | MalformedCall, int]:
    end = text.find("</search>", inside)
    if end == -1:
        return MalformedCall("a <search> was opened and never closed with </search>"), len(text)
    query = text[inside:end].strip()
    after = end + len("</search>")
    return (ToolCall("search", {"query": query}) if query else MalformedCall("the <search> is empty")), after


def _code_call(code: str) -> ToolCall | MalformedCall:
    return ToolCall("python", {"code": code}) if code.strip() else MalformedCall("the python block is empty")


def _attribute(name: str) -> str:
    return "".join(mark if mark.isalnum() or mark in "_-.:/" else "_" for mark in name[:64])


_OPENINGS: Mapping[CallForm, tuple[str, ...]] = {
    CallForm.TOOL_CALL: ("<tool_call>",),
    CallForm.PYTHON_FENCE: ("```python\n", "```py\n", "```python\r\n"),
    CallForm.PYTHON_TAG: ("<python>",),
    CallForm.SEARCH_TAG: ("<search>",),
}
_READERS: Mapping[CallForm, Callable[[str, int], tuple[ToolCall | MalformedCall, int]]] = {
    CallForm.TOOL_CALL: _read_tool_call,
    CallForm.PYTHON_FENCE: _read_fence,
    CallForm.PYTHON_TAG: _read_python_tag,
    CallForm.SEARCH_TAG: _read_search_tag,
}
