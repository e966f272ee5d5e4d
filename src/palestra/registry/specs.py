"""``EnvSpec``: what is known about an environment id without importing its class, and the options that an id may have."""

import importlib.util
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from palestra.core import AsyncEnv, Env
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.foundation.references import reference_of, resolve

__all__ = ["EnvFactory", "EnvSpec", "Need", "TaskRows", "WrapperFactory", "is_importable", "parse_options"]

EnvFactory = Callable[..., Env | AsyncEnv]
WrapperFactory = Callable[[AsyncEnv], AsyncEnv]


def parse_options(text: str, *, as_text: bool = False) -> tuple[str, dict[str, Any]]:
    """Split ``name?key=value&key=value`` into the name and its keyword arguments.

    A value that is a JSON number, ``true``, ``false`` or ``null`` becomes that; any other value is text, and so is every value
    with ``as_text``. ``%26`` is ``&``.

    Raises:
        UsageError: An option has no ``=``, or a key is given twice.
    """
    name, _, query = text.partition("?")
    options: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier() or key in options:
            raise UsageError(f'"{part}" is not an option of "{text}": write {name}?key=value&other=value, each key once')
        options[key] = unquote(value) if as_text else _plain_value(unquote(value))
    return name, options


def _plain_value(text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value if value is None or isinstance(value, bool | int | float) else text


class TaskRows(Protocol):
    """The rows of a data set: row ``k`` is the task with ``index=k``."""

    @property
    def sha256(self) -> str:
        """Hash of the content."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something that an environment needs in order to run."""

    label: str
    """Its name in messages: ``ScienceWorld``."""
    module: str = ""
    """The Python module to look for."""
    extra: str = ""
    """The extra of this package that brings it."""
    program: str = ""
    """The program to look for."""
    variable: str = ""
    """The environment variable that names it."""
    argument: str = ""
    """The keyword argument of the class that provides it instead."""
    condition: Callable[[], bool] | None = None
    """Whether it is there, where the fields above cannot say it. It must be quick."""
    fix: str = ""
    """What to type, where it is not the installation of ``extra``."""

    def met(self) -> bool:
        """Return whether it is installed. Imports nothing."""
        if self.module and not is_importable(self.module):
            return False
        if self.variable and self.variable not in os.environ:
            return False
        if self.condition is not None and not self.condition():
            return False
        if not self.program:
            return True
        import shutil  # with all its compressors, and few environments need a program

        return shutil.which(self.program) is not None

    @property
    def remedy(self) -> str:
        """The command that installs it."""
        return self.fix or (how_to_install(self.extra) if self.extra else "not found")


@dataclass(frozen=True, kw_only=True)
class EnvSpec:
    """What the registry knows about an id, without importing its class."""

    id: str
    entry: str | EnvFactory
    """``module:Class``, or the class itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    """``GuessTheNumber`` of ``game:GuessTheNumber-v0-easy``."""
    level: str = ""
    levels: tuple[str, ...] = ()
    """All levels of the family, the default one first."""
    tags: frozenset[str] = frozenset()
    max_turns: int | None = None
    """Episodes are truncated after this many turns. With ``wrappers``, the turns of the agent count, tool calls included."""
    needs: tuple[Need, ...] = ()
    wrappers: tuple[WrapperFactory, ...] = ()
    """Applied innermost first."""
    description: str = ""
    rows: "str | Callable[..., TaskRows]" = ""
    """For an environment with a finite number of tasks: the function, or a reference to it, that returns the rows for the
    keyword arguments of the class. Empty if the tasks never end. Evaluation plays each row at most once."""

    @property
    def namespace(self) -> str:
        """``game`` of ``game:GuessTheNumber-v0-easy``."""
        return self.id.partition(":")[0]

    def missing(self, given: Container[str] = ()) -> tuple[Need, ...]:
        """Return the needs that are not installed, for a call with the keyword arguments ``given``."""
        return tuple(need for need in self.needs if need.argument not in given and not need.met())

    def factory(self, given: Container[str] = ()) -> EnvFactory:
        """Return the class or function that builds the environment.

        Raises:
            MissingExtra: Something that the environment needs is not installed.
        """
        if missing := self.missing(given):
            first, *others = missing
            also = "".join(f" (and {need.label}: not found)" for need in others)
            raise MissingExtra(f'"{self.id}" needs {first.label}: {first.remedy}{also}')
        factory = resolve(self.entry) if isinstance(self.entry, str) else self.entry
        if not callable(factory):
            raise UsageError(f'"{self.id}" names {self.entry}, which is not a class or function')
        return factory

    def read_rows(self) -> TaskRows | None:
        """Return the rows of a finite environment; ``None`` if its tasks never end."""
        if not self.rows:
            return None
        read: Callable[..., TaskRows] = resolve(self.rows) if isinstance(self.rows, str) else self.rows
        return read(**self.kwargs)

    def reference(self) -> str:
        """Return the name by which another process can find the factory."""
        return self.entry if isinstance(self.entry, str) else reference_of(self.entry)


def is_importable(module: str) -> bool:
    """Return whether there is a module of this name. Imports nothing but its parents."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
