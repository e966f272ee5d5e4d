"""Tasks, descriptions and API classes, read from the unpacked wheel of ``bfcl-eval``.

Only the modules of the APIs are imported, never the package's evaluation code, which evaluates calls as Python. Gold calls are
Python call expressions in the data; they are parsed, and a call with anything but literal arguments is an error.
"""

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from palestra.authoring.function_calls import Schema
from palestra.authoring.rows import Rows, hashed
from palestra.errors import SchemaError, UsageError
from palestra.trajectory import ToolCall
from palestra.worlds.bfcl.wheels import BFCL

__all__ = ["CATEGORIES", "api_class", "api_schemas", "gold_call", "read_tasks"]

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
"""200 tasks each."""

_SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
_MODULES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
_TYPES: Mapping[str, str] = {"dict": "object", "float": "number", "tuple": "array"}


def read_tasks(category: str) -> Rows:
    """Return the tasks of one category, each with its gold calls.

    Raises:
        MissingData: The package is not on this machine; the message says what to type.
    """
    if category not in CATEGORIES:
        raise UsageError(f'BFCL has no category "{category}"; there are {", ".join(CATEGORIES)}')
    return _tasks(category, BFCL.folder())


@lru_cache(maxsize=8)
def _tasks(category: str, folder: Path) -> Rows:
    name = f"BFCL_v4_multi_turn_{category}.json"
    data = folder / "bfcl_eval" / "data"
    gold = {row["id"]: row["ground_truth"] for row in _lines(data / "possible_answer" / name)}
    return hashed([{**row, "gold": gold[row["id"]]} for row in _lines(data / name)], str(data / name))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


@cache
def api_class(name: str) -> Callable[[], Any]:
    """Return the class that simulates one API. The first call imports its module."""
    folder = str(BFCL.folder())
    if folder not in sys.path:
        sys.path.append(folder)  # at the end, so that installed packages come first
    module: Any = importlib.import_module(f"{_SOURCE}.{_MODULES[name]}")
    if name == "TravelAPI":
        module.datetime = _FixedDate
    found: Callable[[], Any] = getattr(module, name)
    return found


class _FixedDate(datetime):
    """``datetime`` on one day. The travel API compares a traveler's age with the clock, so tasks would change over time."""

    @classmethod
    def today(cls) -> "_FixedDate":
        """The day on which the trading API plays, too."""
        return cls(2024, 9, 1, 10, 30)


@cache
def api_schemas(name: str) -> Mapping[str, Schema]:
    """Return the functions of one API by name, with their parameters as JSON schema."""
    path = BFCL.folder() / "bfcl_eval" / "data" / "multi_turn_func_doc" / f"{_MODULES[name]}.json"
    return {
        row["name"]: {
            "name": row["name"],
            "description": row["description"],
            "parameters": _json_schema(row["parameters"]),
        }
        for row in _lines(path)
    }


def _json_schema(described: Any) -> Any:
    """Replace the names of Python types by those of JSON schema."""
    if isinstance(described, list):
        return [_json_schema(part) for part in described]
    if not isinstance(described, dict):
        return described
    kind = described.get("type")
    named = {"type": _TYPES.get(kind, kind)} if isinstance(kind, str) else {}
    return {key: _json_schema(value) for key, value in described.items()} | named


def gold_call(written: str, methods: Mapping[str, Callable[..., Any]]) -> ToolCall:
    """Return the call that ``written``, a Python call expression, names. Nothing is evaluated but literals.

    Raises:
        SchemaError: It is not a call of one of ``methods`` with literal arguments.
    """
    try:
        call = ast.parse(written, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call of a function by name")
        given = [ast.literal_eval(argument) for argument in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        bound = inspect.signature(methods[call.func.id]).bind(*given, **named)
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise SchemaError(f"the gold call {written[:200]!r} cannot be read: {type(error).__name__}: {error}") from None
    return ToolCall(call.func.id, dict(bound.arguments))
