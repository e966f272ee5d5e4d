"""The forms in which models write tool calls.

The canonical form is ``palestra.trajectory.calls``'s: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>`` (Hermes, Qwen).
Where an environment lends tools, models may be allowed to write calls in other forms too; this module finds all of them.

Reading is total and linear: any text gives a list of calls and of attempts that failed, each with a sentence for the model. An
attempt that cannot be read is never mistaken for an ordinary action. What stands in ``<think>`` is a thought, not a call.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from palestra.trajectory import ToolCall
from palestra.trajectory.calls import CLOSE, OPEN, BadCall, call_end, read_arguments, read_call

__all__ = ["CallForm", "find_calls"]


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


def find_calls(text: str, forms: Collection[CallForm] = (CallForm.TOOL_CALL,)) -> tuple[ToolCall | BadCall, ...]:
    """Every call in ``text`` written in one of ``forms``, and every failed attempt at one, in the order they stand there."""
    attempts: list[ToolCall | BadCall] = []
    position = 0
    markups = {opening: _MARKUPS[form] for form in forms for opening in _MARKUPS[form].openings} | {"<think>": _THOUGHT}
    nearest = _Nearest(text, markups)
    while (hit := nearest.from_(position)) is not None:
        start, opening = hit
        inside, (_, closing, read) = start + len(opening), markups[opening]
        # The newline that ends an opening fence may begin the closing one.
        end = call_end(text, inside) if opening == OPEN else text.find(closing, inside - 1)
        position = len(text) if end == -1 else end + len(closing)
        if read is None:
            continue
        if end == -1:
            attempts.append(BadCall(text[inside:], f"{opening.strip()} was opened and never closed with {closing.strip()}."))
        else:
            attempts.append(read(text[inside:end].strip("\n")))
    return tuple(attempts)


# ------------------------------------------------------------------------------------------------------------- the scan


class _Nearest:
    """The next of several openings. Each is searched for once per occurrence, so the whole scan is linear."""

    def __init__(self, text: str, openings: Collection[str]) -> None:
        self._text = text
        self._next = {opening: text.find(opening) for opening in openings}

    def from_(self, position: int) -> tuple[int, str] | None:
        best: tuple[int, str] | None = None
        for opening, before in self._next.items():
            at = before
            if -1 < before < position:
                at = self._next[opening] = self._text.find(opening, position)
            if at != -1 and (best is None or at < best[0]):
                best = (at, opening)
        return best


# ------------------------------------------------------------------------------------------------------------ the forms


def _read_tool_call(body: str) -> ToolCall | BadCall:
    stripped = body.strip()
    return _read_gem(stripped) if stripped.startswith("<tool_name>") else read_call(stripped)


def _read_gem(body: str) -> ToolCall | BadCall:
    name, closed, rest = body.removeprefix("<tool_name>").partition("</tool_name>")
    rest = rest.strip()
    if not closed or not rest.startswith("<arguments>") or not rest.endswith("</arguments>"):
        return BadCall(body, "write <tool_name>…</tool_name><arguments>{json}</arguments> inside <tool_call>.")
    arguments = read_arguments(rest.removeprefix("<arguments>").removesuffix("</arguments>").strip() or "{}")
    return arguments if isinstance(arguments, BadCall) else ToolCall(name.strip(), arguments)


def _read_code(body: str) -> ToolCall | BadCall:
    return ToolCall("python", {"code": body}) if body.strip() else BadCall(body, "the python block is empty.")


def _read_query(body: str) -> ToolCall | BadCall:
    query = body.strip()
    return ToolCall("search", {"query": query}) if query else BadCall(body, "the <search> is empty.")


class _Markup(NamedTuple):
    """How one form begins and ends, and what reads the text between; a form without a reader is passed over."""

    openings: tuple[str, ...]
    closing: str
    read: Callable[[str], ToolCall | BadCall] | None


_THOUGHT = _Markup(("<think>",), "</think>", None)
_MARKUPS: Mapping[CallForm, _Markup] = {
    CallForm.TOOL_CALL: _Markup((OPEN,), CLOSE, _read_tool_call),
    CallForm.PYTHON_FENCE: _Markup(("```python\n", "```py\n", "```python\r\n"), "\n```", _read_code),
    CallForm.PYTHON_TAG: _Markup(("<python>",), "</python>", _read_code),
    CallForm.SEARCH_TAG: _Markup(("<search>",), "</search>", _read_query),
}
