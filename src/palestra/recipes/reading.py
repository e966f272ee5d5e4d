"""``resolve``: a recipe, such as a TOML file, becomes a ``TrainConfig``, with its preset and overrides by dotted name.

    palestra train recipe.toml learner.learning_rate=1e-5 advantage.method=grpo warm_start=none
    palestra train recipe.toml advantage.method=my_package:scaled advantage.method.scale=2

``preset = "dapo"`` sets the keys of a paper. A preset is a partial recipe; the keys of the recipe and the overrides replace its
keys, one by one. The configuration that results holds every key, so a run folder does not depend on the preset.

The value of an override is read as TOML; a bare word is a string, and ``none`` removes the key. To override a keyword of a part
that the recipe names by a string makes a table of it. An unknown key is an error that names the nearest known one.
"""

import difflib
import re
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from palestra.durable.guard import CONFIG
from palestra.errors import UsageError
from palestra.foundation.confidential import mask_url
from palestra.recipes.config import TrainConfig

__all__ = ["FREE", "RECIPES", "find_recipe", "kept", "names", "presets", "recorded", "resolve", "saved_config"]

RECIPES = Path(__file__).parent / "files"
"""The folder of the shipped recipes."""
_PRESETS = Path(__file__).parent / "presets"

FREE = (
    "steps",
    "checkpoint_every",
    "keep",
    "settle",
    "samples",
    "writers",
    "opponent.urls",
    "teacher.urls",
    "engine.urls",
    "engine.launch",
    "engine.sleep",
    "engine.batch",
    "engine.rows",
    "engine.device",
    "play.concurrency",
    "play.deadline",
    "play.retries",
    "model.device",
    "learner.packing",
    "learner.offload",
    "learner.context_parallel",
    "evaluation.every",
    "evaluation.temperature",
    "evaluation.at_start",
    "evaluation.metric",
    "evaluation.keep_best",
    "evaluation.patience",
)
"""Keys that may change when a run is resumed: none of them changes the result of a finished step."""


def resolve(recipe: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> TrainConfig:
    """Return the configuration of ``recipe``, with its preset, ``overrides`` and every default filled in.

    Every bound is checked, and that every short name of a part exists. Nothing that the recipe names is imported.

    Args:
        recipe: A TOML file, the name of a shipped recipe such as ``cpu/guess``, or the tables of a recipe as a mapping.
        overrides: Texts such as ``"learner.learning_rate=1e-5"``, applied in this order.

    Raises:
        UsageError: This is not a recipe, or a key or value in it is wrong. The message names the key.

    """
    if isinstance(recipe, Mapping):
        name, folder, data = "the recipe", Path(), _copied(recipe)
    else:
        path = find_recipe(Path(recipe))
        name, folder, data = str(path), path.parent, _read(path, "a recipe")
    for override in overrides:
        if override.startswith("preset="):
            _override(data, override)
    if isinstance(data.get("preset"), str):
        data = _merged(_read(_find_preset(data["preset"], folder), "a preset"), data)
    for override in overrides:  # after the preset, so that ``none`` removes a key of the preset as well
        _override(data, override)
    _check_names(data, TrainConfig, "")
    try:
        return msgspec.convert(data, TrainConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"{_to_blame(recipe, name, overrides, str(error))}: {_in_words(str(error))}") from None


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables, which overrides may change, without those of the caller."""
    return {key: _copied(value) if isinstance(value, Mapping) else value for key, value in tables.items()}


def _to_blame(recipe: str | Path | Mapping[str, Any], name: str, overrides: Sequence[str], problem: str) -> str:
    """Name what holds the wrong value: the override of its key, all overrides if the recipe alone is right, or the recipe."""
    wrong = _key_in(problem)
    for override in overrides:
        key = ".".join(_keys(override.partition("=")[0]))
        if wrong and (wrong == key or wrong.startswith((f"{key}.", f"{key}["))):
            return f'the override "{override}"'
    if not overrides:
        return name
    try:
        resolve(recipe)
    except UsageError:
        return f"{name} with {' '.join(overrides)}"
    return f"with {' '.join(overrides)}"


def _key_in(problem: str) -> str:
    """The dotted key in an error of msgspec; empty if it has none."""
    return problem.partition(" - at ")[2].strip("`").removeprefix("$").removeprefix(".")


def _read(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}, which should be {what}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not {what}: it is not valid TOML: {error}") from None


def presets() -> dict[str, Path]:
    """Return the shipped presets by name."""
    return {path.stem: path for path in sorted(_PRESETS.glob("*.toml"))}


def _find_preset(name: str, beside: Path) -> Path:
    shipped = presets()
    file = beside / name
    if name not in shipped and not file.is_file():
        raise UsageError(f'there is no preset "{name}": name a TOML file, or one of {", ".join(shipped)}')
    return shipped.get(name, file)


def _merged(defaults: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """``defaults`` with the keys of ``data``, table by table. A part that is named by a table with ``use`` is one value."""
    for key, value in data.items():
        below = defaults.get(key)
        both = isinstance(value, dict) and isinstance(below, dict) and "use" not in value
        defaults[key] = _merged(below, value) if both and isinstance(below, dict) else value
    return defaults


def find_recipe(path: Path) -> Path:
    """Return ``path`` if it exists, otherwise the shipped recipe of that name, with or without ``.toml``."""
    if path.exists():
        return path
    shipped = {file.relative_to(RECIPES).with_suffix(""): file for file in sorted(RECIPES.rglob("*.toml"))}
    typed = path.with_suffix("") if path.suffix == ".toml" else path
    if typed not in shipped:
        names = [str(name) for name in shipped]
        near = difflib.get_close_matches(str(typed), names, 3, 0.75) or [name for name in names if name.endswith(f"/{typed}")]
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Name a TOML file, or one of {', '.join(names)}."
        raise UsageError(f"there is no recipe {path}. {hint}")
    return shipped[typed]


def names(kind: type[msgspec.Struct] = TrainConfig, prefix: str = "") -> Iterator[tuple[str, msgspec.structs.FieldInfo]]:
    """Yield every dotted key of a recipe with its field."""
    for field in msgspec.structs.fields(kind):
        yield f"{prefix}{field.encode_name}", field
        for inner in _structs(field.type):
            yield from names(inner, f"{prefix}{field.encode_name}.")


def recorded(config: TrainConfig) -> TrainConfig:
    """Return ``config`` as the run folder keeps it: addresses without user, password and query values."""
    return msgspec.convert(_masked(msgspec.to_builtins(config)), TrainConfig)


def kept(config: TrainConfig, data: Mapping[str, str]) -> dict[str, Any]:
    """Return what ``config.json`` of a run holds: the configuration, and in ``data`` the hash of each environment's rows."""
    return {**msgspec.to_builtins(recorded(config)), "data": _masked(dict(data))}


def saved_config(folder: str | Path) -> TrainConfig:
    """Read the configuration of the training run in ``folder``. Nothing that it names is imported.

    Raises:
        UsageError: ``folder`` does not hold a training run.

    """
    path = Path(folder) / CONFIG
    try:
        data = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        if data.pop("run", None) != "training":
            raise UsageError(f"{folder} does not hold a training run: name the folder that palestra train wrote")
        data.pop("data", None)
        return msgspec.convert(data, TrainConfig)
    except OSError as error:
        raise UsageError(f"{folder} does not hold a training run: cannot read {path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not the configuration of a training run: {error}") from None


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_url(value) if "://" in value else value
    if isinstance(value, dict):
        return {_masked(key): _masked(part) for key, part in value.items()}
    return [_masked(part) for part in value] if isinstance(value, list | tuple) else value


def _in_words(problem: str) -> str:
    """Rewrite an error of msgspec so that it begins with the dotted key."""
    what, key = problem.partition(" - at ")[0], _key_in(problem)
    choices = next((_choices(field.type) for name, field in names() if name == key), [])
    if what.startswith("Invalid enum value") and choices:
        what += f", expected one of {', '.join(choices)}"
    # An error that a part raised itself names its key already.
    return f"{key}: {what[:1].lower()}{what[1:]}" if key and not what.startswith(key) else what


# --------------------------------------------------------------------------------------------------------------- overrides


def _override(data: dict[str, Any], override: str) -> None:
    parts = re.fullmatch(r'((?:"[^"]*"|[^=])+)=(.*)', override, re.DOTALL)  # a name in quotes may contain "="
    if parts is None:
        raise UsageError(f'an override looks like learner.learning_rate=1e-5, got "{override}"')
    name, text = parts.groups()
    *parents, last = keys = _keys(name)
    if text == "none":
        _remove(data, keys)
        return
    for parent in parents:
        if isinstance(data.get(parent), str):  # a part that is named without keywords
            data[parent] = {"use": data[parent]}
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise UsageError(f'"{override}": {parent} is a value, not a table')
    data[last] = _value(text)


def _remove(data: dict[str, Any], keys: Sequence[str]) -> None:
    """Remove a key. If it is not there, nothing changes: an empty table would turn its part of the run on."""
    asked: Any = None
    for key in reversed(keys):
        asked = {key: asked}
    _check_names(asked, TrainConfig, "")
    inner: Any = data
    for key in keys[:-1]:
        inner = inner.get(key)
        if not isinstance(inner, dict):
            return
    inner.pop(keys[-1], None)


def _keys(name: str) -> list[str]:
    """Split a dotted name. A part that contains dots is in quotes, as in TOML."""
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
    """Read ``text`` as TOML; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ------------------------------------------------------------------------------------------------------------------- names


def _check_names(data: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str) -> None:
    """Raise for the first key in ``data`` that ``kind`` does not have, and name the nearest key of the whole recipe."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for key, value in data.items():
        if key not in fields:
            _raise_unknown(f"{prefix}{key}", [f"{prefix}{name}" for name in fields])
        for inner in _structs(fields[key].type) if isinstance(value, dict) else ():
            _check_names(value, inner, f"{prefix}{key}.")


def _raise_unknown(name: str, siblings: Sequence[str]) -> None:
    last = name.rpartition(".")[2]
    elsewhere = [key for key, _ in names() if key.rpartition(".")[2] == last]
    near = difflib.get_close_matches(name, siblings, 1, 0.8) or elsewhere[:3]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(sorted(siblings))}."
    raise UsageError(f'a recipe has no "{name}". {hint}')


def _choices(kind: Any) -> list[str]:
    """Return the words and the kinds of numbers that a field of type ``kind`` accepts."""
    if typing.get_origin(kind) is Literal:
        return [str(word) for word in typing.get_args(kind)]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return [choice for option in typing.get_args(kind) for choice in _choices(option)]
    return {int: ["a whole number"], float: ["a number"]}.get(kind, [])


def _structs(kind: Any) -> list[type[msgspec.Struct]]:
    """Return the tables that a field of type ``kind`` accepts."""
    if typing.get_origin(kind) is Annotated:
        return _structs(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return [table for option in typing.get_args(kind) for table in _structs(option)]
    return [kind] if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else []
