"""What a TOML file says about a data set: its source, its splits, and which of its fields are the question and the answer."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from palestra.errors import SchemaError, UsageError

__all__ = ["DataSet", "data_set", "data_set_names", "parse"]


class DataSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A data set, as described in its TOML file."""

    name: str
    about: str
    """What it holds, in one sentence."""
    fields: dict[str, str]
    """Our name of a field → the set's own. A dot goes into a nested field."""
    splits: dict[str, str] = msgspec.field(default_factory=lambda: {"train": "train"})
    """Our name of a split → the set's own. The first is the default."""
    source: str = ""
    """Its name on the Hugging Face hub; empty if it is not there."""
    config: str = ""
    """The configuration on the hub, where there are several."""
    revision: str = ""
    """The commit or tag on the hub to download; the newest if empty."""
    package: str = ""
    """``module:function`` of an installed package that returns the rows, for sets that need no download."""
    extra: str = ""
    """The extra of ours that brings the package."""

    @property
    def default_split(self) -> str:
        """The split that is meant if none is named."""
        return next(iter(self.splits))

    def mapped(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """``row`` of the set under our names. A row that has them already (a file of one's own) is taken as it is."""
        mapped: dict[str, Any] = {}
        for ours, theirs in self.fields.items():
            value = _at(row, theirs)
            if value is _ABSENT:
                value = row.get(ours, _ABSENT)
            if value is _ABSENT:
                raise SchemaError(f'a row of {self.name} has no field "{theirs}" (or "{ours}"); it has {sorted(row)}')
            mapped[ours] = value
        return mapped


_ABSENT = object()


def _at(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def parse(text: str) -> DataSet:
    """The data set that a TOML text describes."""
    try:
        return msgspec.convert(tomllib.loads(text), DataSet)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SchemaError(f"not a description of a data set: {error}") from None


@cache
def data_set(name: str) -> DataSet:
    """The built-in data set ``name``."""
    path = files("palestra.suite.data") / "sets" / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f'no data set is called "{name}"; there are {", ".join(data_set_names())}')
    return parse(path.read_text("utf-8"))


@cache
def data_set_names() -> tuple[str, ...]:
    """Every built-in data set."""
    folder = files("palestra.suite.data") / "sets"
    return tuple(sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")))
