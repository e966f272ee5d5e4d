"""The simulated APIs of one episode: their objects, the calls made on them, and their state.

A call runs under a decimal and a multi-precision context of its own, because the mathematics API sets both for the whole
process. Arguments that would keep the processor busy for long (a power of huge integers, a million digits) are refused. So are
calls that walk through a tree of folders that copies have made huge: the file system shares the subfolders of a copied folder,
which then have many paths.
"""

import decimal
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

from palestra.authoring.changes import Difference, changes
from palestra.authoring.function_calls import Schema
from palestra.trajectory import ToolCall
from palestra.worlds.bfcl.package import api_class, api_schemas

__all__ = ["Answer", "Apis"]

_LARGEST = 10**18
_MOST_DIGITS = 1000
_LONGEST = 100_000
_MOST_PATHS = 10_000
"""Paths of a file system. Those of the tasks have at most a few hundred."""
_DEEPEST = 8
"""Folders inside each other that a picture shows."""
_WALKING = frozenset({"cd", "cp", "du", "find", "mv"})
"""The functions that walk through folders, or copy what is in them."""


class Answer(NamedTuple):
    """The result of one call, as text."""

    text: str
    ok: bool


class Apis:
    """The objects of one episode, made from the initial state that the task gives."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._objects: dict[str, Any] = {}
        self.methods: dict[str, Callable[..., Any]] = {}
        """What may be called, by name."""
        self.schemas: dict[str, Schema] = {}
        """How the functions are described to the agent."""
        self.made: list[ToolCall] = []
        """The calls so far."""
        for name in row["involved_classes"]:
            made = self._objects[name] = api_class(name)()
            if hasattr(made, "_load_scenario"):
                state = deepcopy(row["initial_config"].get(name, {}))
                made._load_scenario(state, long_context="long_context" in row["id"])
            self.schemas.update(api_schemas(name))
            self.methods.update({method: getattr(made, method) for method in api_schemas(name)})

    def call(self, call: ToolCall) -> Answer:
        """Make one call. Whatever it raises becomes its answer."""
        self.made.append(call)
        if problem := _too_much(call) or self._too_many_paths(call):
            return Answer(f"Error during execution: {problem}", False)
        try:
            with decimal.localcontext(), _own_precision():
                result = self.methods[call.name](**call.arguments)
                return Answer(_as_text(result), not (isinstance(result, dict) and "error" in result))
        except Exception as error:  # noqa: BLE001 - the code of the APIs raises anything on arguments that it does not expect
            return Answer(f"Error during execution: {error}", False)

    def _too_many_paths(self, call: ToolCall) -> str:
        files = self._objects.get("GorillaFileSystem")
        if call.name not in _WALKING or files is None or _paths(files.root) <= _MOST_PATHS:
            return ""
        return f"the file system has more than {_MOST_PATHS} paths"

    def same_state(self, other: "Apis") -> bool:
        """Return whether all public attributes of all objects are equal to those of ``other``."""
        try:
            return all(
                getattr(self._objects[name], attribute, None) == value
                for name, theirs in other._objects.items()
                for attribute, value in vars(theirs).items()
                if not attribute.startswith("_")
            )
        except RecursionError:  # a folder that was copied into itself
            return False

    def changed(self) -> Iterator[Difference]:
        """Return what the calls have changed in the public attributes of all objects."""
        return changes(Apis(self._row)._state(), self._state())

    def _state(self) -> dict[str, Any]:
        public = {
            name: {key: value for key, value in vars(one).items() if key[0] != "_"} for name, one in self._objects.items()
        }
        return {name: _plain(attributes) for name, attributes in public.items()}

    def fork(self) -> "Apis":
        """Return objects in the same state: new ones, on which the same calls are made."""
        twin = Apis(self._row)
        for call in self.made:
            twin.call(call)
        return twin


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a copy in which folders are dictionaries and files are their content. A folder may be inside itself."""
    if hasattr(value, "contents") and _paths(value) > _MOST_PATHS:
        return "…"
    value = getattr(value, "contents", getattr(value, "content", value))
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {key: _plain(part, depth + 1) for key, part in value.items()}
    return [_plain(part, depth + 1) for part in value] if depth < _DEEPEST and isinstance(value, list | tuple) else str(value)


def _paths(root: Any) -> int:
    """Count the paths below ``root``, at most a few more than matter. A folder inside itself has endlessly many."""
    open_, found = [root], 0
    while open_ and found <= _MOST_PATHS:
        contents = getattr(open_.pop(), "contents", {})  # a file has none
        found += len(contents)
        open_ += contents.values()
    return found


def _own_precision() -> AbstractContextManager[Any]:
    mpmath: Any = sys.modules.get("mpmath")  # imported by the mathematics API only
    return nullcontext() if mpmath is None else mpmath.workdps(mpmath.mp.dps)


def _as_text(result: object) -> str:
    """Write a result as the leaderboard does, since gold results are compared as text."""
    if not isinstance(result, dict):
        return str(result)
    try:
        return json.dumps(result)
    except (TypeError, ValueError):
        return str(result)


def _too_much(call: ToolCall) -> str:
    """Return why ``call`` would cost too much, or an empty string."""
    arguments = call.arguments
    if _is_huge(arguments):
        return f"numbers must lie between -{_LARGEST:.0e} and {_LARGEST:.0e}, texts have at most {_LONGEST} characters"
    digits = [arguments.get(name) for name in ("precision", "decimal_places")]
    if any(isinstance(number, int | float) and abs(number) > _MOST_DIGITS for number in digits):
        return f"precision and decimal_places are at most {_MOST_DIGITS}"
    exponent = arguments.get("exponent")
    if isinstance(exponent, int | float) and abs(exponent) > _MOST_DIGITS:
        return f"the exponent is at most {_MOST_DIGITS}"
    return ""


def _is_huge(value: object, depth: int = 0) -> bool:
    if isinstance(value, int | float):
        return not -_LARGEST <= value <= _LARGEST
    if isinstance(value, str):
        return len(value) > _LONGEST
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return depth > 20 or any(_is_huge(part, depth + 1) for part in value)
    return False
