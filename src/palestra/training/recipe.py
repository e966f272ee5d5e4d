"""Recipes: TOML files that become a ``TrainConfig``, with overrides by dotted names, and mistakes told in the user's words.

    palestra train recipe.toml learner.learning_rate=1e-5 advantage.method=grpo warm_start=none

What stands right of ``=`` is read as TOML; a bare word is a string, and ``none`` takes an entry out. A name that does not exist
is answered with the nearest that does.
"""

import difflib
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from palestra.errors import UsageError
from palestra.training.config import TrainConfig

__all__ = ["FREE", "differences", "load_recipe", "names"]

FREE = ("steps", "checkpoint_every", "keep", "samples")
"""What may change when a run is taken up again: none of these changes a step that was made."""


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """The configuration in ``path`` with ``overrides`` put over it."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not a recipe: {error}") from None
    for override in overrides:
        _override(data, override)
    _check_names(data, TrainConfig, "")
    try:
        return msgspec.convert(data, TrainConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_in_words(str(error))}") from None


def names(kind: type[msgspec.Struct] = TrainConfig, prefix: str = "") -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Every dotted name of a recipe and its field. Where one of several tables may stand, all of their names."""
    for field in msgspec.structs.fields(kind):
        yield f"{prefix}{field.encode_name}", field
        for inner in _structs(field.type):
            yield from names(inner, f"{prefix}{field.encode_name}.")


def differences(before: TrainConfig, now: TrainConfig) -> list[str]:
    """The dotted names, except those that are free to change, under which two configurations differ."""
    first, second = _flat(msgspec.to_builtins(before)), _flat(msgspec.to_builtins(now))
    return [name for name in sorted({*first, *second}) if first.get(name) != second.get(name) and name not in FREE]


def _flat(data: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {prefix.removesuffix("."): data}
    return {name: value for key, inner in data.items() for name, value in _flat(inner, f"{prefix}{key}.").items()}


def _in_words(problem: str) -> str:
    """What msgspec says, with the place first, by its dotted name."""
    what, _, where = problem.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    choices = next((typing.get_args(field.type) for name, field in names() if name == place), ())
    if what.startswith("Invalid enum value") and choices:
        what += f", expected one of {', '.join(map(str, choices))}"
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else what


# --------------------------------------------------------------------------------------------------------------- overrides


def _override(data: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise UsageError(f'an override looks like learner.learning_rate=1e-5, got "{override}"')
    *parents, last = _keys(name)
    for parent in parents:
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise UsageError(f'"{override}": {parent} is a value, not a table')
    if text == "none":
        data.pop(last, None)
    else:
        data[last] = _value(text)


def _keys(name: str) -> list[str]:
    """The parts of a dotted name; a part with dots of its own stands in quotes, as in TOML."""
    if '"' not in name:
        return name.split(".")
    try:
        inner: Any = tomllib.loads(f"{name} = 0")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not a dotted name: {error}") from None
    keys = []
    while isinstance(inner, dict):
        ((key, inner),) = inner.items()
        keys.append(key)
    return keys


def _value(text: str) -> Any:
    """``text`` as TOML reads it; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ------------------------------------------------------------------------------------------------------------------- names


def _check_names(data: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str) -> None:
    """Raise for the first name in ``data`` that ``kind`` does not have, with the nearest one of the whole recipe."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        if key not in fields:
            _raise_unknown(f"{prefix}{key}", [f"{prefix}{name}" for name in fields])
        candidates = _structs(fields[key].type)
        if isinstance(value, dict) and candidates:
            chosen = [one for one in candidates if one.__struct_config__.tag == value.get("kind")]
            # Several tables may stand here, and none was named: what then is missing, msgspec says.
            if len(chosen or candidates) == 1:
                inner = {k: v for k, v in value.items() if not (chosen and chosen[0].__struct_config__.tag and k == "kind")}
                _check_names(inner, (chosen or candidates)[0], f"{prefix}{key}.")


def _raise_unknown(name: str, siblings: Sequence[str]) -> None:
    last = name.rpartition(".")[2]
    elsewhere = [one for one, _ in names() if one.rpartition(".")[2] == last]
    near = difflib.get_close_matches(name, siblings, 1, 0.8) or elsewhere[:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(sorted(siblings))}."
    raise UsageError(f'a recipe has no "{name}". {hint}')


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """The tables that may stand where ``kind`` is asked for."""
    if typing.get_origin(kind) is Annotated:
        return _structs(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return [one for option in typing.get_args(kind) for one in _structs(option)]
    return [kind] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []
