"""A first check of arguments against the JSON schema, with a message for the model. The tool itself checks the rest."""

from collections.abc import Mapping
from typing import Any

__all__ = ["argument_problem"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def argument_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return what is wrong with ``arguments`` at the first level, or an empty string."""
    properties = schema.get("properties")
    declared: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    missing = [name for name in required if name not in arguments] if isinstance(required, list | tuple) else []
    if missing:
        return f"missing: {', '.join(map(str, missing))}"
    unknown = [name for name in arguments if name not in declared]
    if unknown and schema.get("additionalProperties") is False:
        return f"unknown: {', '.join(unknown)} (known: {', '.join(declared)})"
    for name, value in arguments.items():
        expected = declared[name].get("type") if isinstance(declared.get(name), Mapping) else None
        if isinstance(expected, str) and not _is_a(value, expected):
            return f"{name} must be of type {expected}"
    return ""


def _is_a(value: object, expected: str) -> bool:
    if isinstance(value, bool) and expected in ("integer", "number"):
        return False
    if isinstance(value, float) and expected == "integer":
        return value.is_integer()
    return isinstance(value, _TYPES.get(expected, (object,)))
