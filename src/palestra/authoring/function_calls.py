"""What the worlds of functions have in common: how they describe functions, read calls, and write random ones.

An environment of such a world runs the calls itself, because they change its own state. A message with calls is answered by one
result per call, in order; a message without a call is the agent's answer to the user.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from palestra.tools import find_calls
from palestra.tools.showing import presentable
from palestra.trajectory import ToolCall, ToolResult
from palestra.trajectory.calls import BadCall, format_call, format_result

__all__ = ["CALLS_PER_MESSAGE", "Schema", "describe", "read_calls", "refusal", "sample_call", "show_result"]

Schema = Mapping[str, Any]
"""``name``, ``description`` and ``parameters`` (a JSON schema) of a function."""

CALLS_PER_MESSAGE = 50
"""Calls in one message beyond these are not made."""
SHOWN_CHARACTERS = 40_000
"""Characters of a result that the agent sees; the middle of a longer one is left out."""

_WORDS = ("a", "report", "2024-05-01", "admin", "notes.txt", "10", "", "Paris", "user@example.com")


def describe(schemas: Iterable[Schema]) -> str:
    """Return the text that presents functions to a model, one line of JSON per function."""
    return "\n".join(msgspec.json.encode(schema).decode() for schema in schemas)


def read_calls(action: str) -> Sequence[ToolCall | BadCall]:
    """Return the calls in ``action``, good and bad; none if the action is an answer."""
    calls = find_calls(action)
    if len(calls) <= CALLS_PER_MESSAGE:
        return calls
    refused = f"one message may contain {CALLS_PER_MESSAGE} calls; {len(calls) - CALLS_PER_MESSAGE} more were not made."
    return [*calls[:CALLS_PER_MESSAGE], BadCall("", refused)]


def refusal(call: ToolCall | BadCall, schemas: Mapping[str, Schema]) -> str:
    """Return why ``call`` cannot be made with these functions, or an empty string. The function itself checks its arguments."""
    if isinstance(call, BadCall):
        return call.error
    return "" if call.name in schemas else f"there is no such function; there are: {', '.join(schemas)}"


def show_result(call: ToolCall | BadCall, text: str, *, ok: bool) -> str:
    """Return what the agent sees of one call."""
    name, ident = ("", "") if isinstance(call, BadCall) else (call.name, call.id)
    return format_result(name, ToolResult(presentable(text, SHOWN_CHARACTERS), ok), ident)


def sample_call(schemas: Mapping[str, Schema], rng: np.random.Generator) -> str:
    """Return a random well-formed call of one of the functions."""
    schema = schemas[list(schemas)[int(rng.integers(len(schemas)))]]
    parameters = schema["parameters"]
    required = parameters.get("required", ())
    chosen = [name for name in parameters.get("properties", {}) if name in required or rng.random() < 0.3]
    arguments = {name: _sample(parameters["properties"][name], rng) for name in chosen}
    return format_call(ToolCall(schema["name"], arguments))


def _sample(schema: Mapping[str, Any], rng: np.random.Generator) -> Any:
    options = schema.get("enum")
    if options:
        return options[int(rng.integers(len(options)))]
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return int(rng.integers(-3, 100)) if kind == "integer" else round(float(rng.normal(0, 100)), 2)
    if kind == "boolean":
        return bool(rng.integers(2))
    if kind == "array":
        items = schema.get("items")
        return [_sample(items if isinstance(items, Mapping) else {}, rng) for _ in range(int(rng.integers(4)))]
    if kind == "object":
        return {name: _sample(part, rng) for name, part in schema.get("properties", {}).items()}
    return _WORDS[int(rng.integers(len(_WORDS)))]
