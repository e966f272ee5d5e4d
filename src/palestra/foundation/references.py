"""Names of Python objects: ``module:qualname``, as in entry points.

A reference can be written into a task, sent to a worker process or typed on a command line; a callable cannot.

A ``Hook`` is a reference with keyword arguments, as recipes write it. A ``Role`` is a part of Palestra that a hook may replace:
it knows the built-in choices and the arguments that Palestra passes, and turns a hook into a callable.

The installed ``palestra`` command does not have the working folder on its search path. ``search_here`` adds it. Only the
commands call it, for a reference that the user typed or that is in the recipe which the user passed. A reference in a file of
a run never makes Python search the working folder.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import Parameter
from typing import Any

import msgspec

from palestra.errors import UsageError
from palestra.foundation.imports import import_uninterrupted

__all__ = [
    "Hook",
    "Role",
    "hook",
    "is_reference",
    "load_main",
    "parse_hook",
    "reference_of",
    "resolve",
    "search_here",
    "search_path",
]

Hook = str | dict[str, Any]
"""How a recipe names a part: a built-in's short name, ``module:name``, or ``{use = "module:name", any_keyword = 1}``."""

_LOADED_MAIN = "__palestra_main__"


def is_reference(name: str) -> bool:
    """Return whether ``name`` has the form ``module:qualname``. Nothing is imported."""
    module, _, qualname = name.partition(":")
    return bool(qualname) and all(part.isidentifier() for part in (*module.split("."), *qualname.split(".")))


def search_here() -> None:
    """Append the working folder to ``sys.path``, once and last: a file in it never hides an installed module."""
    here = os.getcwd()
    if here not in search_path():
        sys.path.append(here)


def search_path() -> list[str]:
    """Return ``sys.path`` with absolute folders, for a child process that must import what this process can import.

    Start the child with ``python -P``; otherwise Python puts the working folder first.
    """
    return [part or os.getcwd() for part in sys.path]


def resolve(reference: str) -> Any:
    """Return the object that ``module:qualname`` names."""
    module_name, _, qualname = reference.partition(":")
    if not module_name or not qualname:
        raise UsageError(f"{reference!r} is not a reference; write module:Name")
    module = target = _import(module_name)
    for part in qualname.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            file = getattr(module, "__file__", None)
            raise UsageError(f"module {module_name!r}{f' ({file})' if file else ''} has no {qualname!r}") from None
    return target


def _import(name: str) -> Any:
    """Import the module ``name``. If it does not exist or fails, raise a ``UsageError`` that names the file and the line."""
    try:
        return import_uninterrupted(name)
    except SyntaxError as error:
        raise UsageError(f"{name} cannot be imported: {error.filename}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"there is no module {error.name!r} in the working folder or among the installed packages"
            ) from None
        if name.partition(".")[0] == __package__.partition(".")[0] or isinstance(error, UsageError):
            raise  # an error in a module of this package is a bug, and a UsageError explains itself
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise UsageError(f"{name} cannot be imported: {type(error).__name__}: {error}{where}") from error


def reference_of(target: Callable[..., Any]) -> str:
    """Return the reference of ``target``. Raise ``UsageError`` if another process could not find it by that name."""
    module_name = getattr(target, "__module__", None)
    if module_name == _LOADED_MAIN:
        raise UsageError(
            "a worker process is importing this script to find its classes, and the script starts episodes meanwhile: "
            'put what it runs under `if __name__ == "__main__":`'
        )
    qualname = getattr(target, "__qualname__", type(target).__qualname__)
    reference = f"{module_name}:{qualname}"
    named: Any = sys.modules.get(module_name or "")
    for part in qualname.split("."):
        named = getattr(named, part, None)
    if named is not target:
        raise UsageError(f"{reference} cannot be imported by that name; define it at the top level of a module")
    return reference


def load_main(path: str) -> None:
    """Load the user's script under another name, as ``multiprocessing`` does, so that its classes are found in ``__main__``."""
    if _LOADED_MAIN in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(_LOADED_MAIN, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_LOADED_MAIN] = sys.modules["__main__"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[_LOADED_MAIN]  # so that the next caller gets the same error
        raise


# ------------------------------------------------------------------------------------------------------------------- hooks


def hook(target: Callable[..., Any] | str, **options: Any) -> Hook:
    """Return the hook for ``target`` with the keyword arguments ``options``, for a configuration that is written in Python.

    Raises:
        UsageError: ``target`` is not defined at the top level of a module, so a resumed run could not find it.

    """
    use = target if isinstance(target, str) else reference_of(target)
    return {"use": use, **options} if options else use


def parse_hook(key: str, value: Hook) -> tuple[str, dict[str, Any]]:
    """Return the name that ``value`` uses and its keyword arguments. ``key`` is the dotted name for error messages."""
    if isinstance(value, str):
        return value, {}
    options = dict(value)
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise UsageError(f'{key}: write a name, or a table that names the object: {{use = "module:name", keyword = 1}}')
    return use, options


@dataclass(frozen=True)
class Role:
    """A part that a hook may replace."""

    key: str
    """The part's dotted name in a recipe, for error messages."""
    arguments: tuple[str, ...]
    """Arguments that Palestra passes, by position."""
    builtins: Mapping[str, Any] = field(default_factory=dict)
    """The objects that have a short name, or references to them."""
    factory: bool = False
    """Whether the object that the hook names is called once and returns the part. Otherwise it is the part: a function is
    called with the arguments and the hook's keywords; a class is created with the keywords, and its instance is called. Every
    ``load`` creates it again."""

    def check(self, value: Hook) -> None:
        """Raise ``UsageError`` unless ``value`` is written as a hook of this role. Imports nothing."""
        use, _ = parse_hook(self.key, value)
        if use not in self.builtins and not is_reference(use):
            choices = f"one of {', '.join(self.builtins)}, or your own as module:name" if self.builtins else "module:name"
            raise UsageError(f'{self.key} = "{use}" is unknown: write {choices}')

    def load(self, value: Hook) -> Callable[..., Any]:
        """Import what ``value`` names and return it as a callable that takes ``arguments``.

        Raises:
            UsageError: The object cannot be imported, or cannot be called with ``arguments`` and the hook's keywords.

        """
        self.check(value)
        use, options = parse_hook(self.key, value)
        target = self.builtins.get(use, use)
        target = resolve(target) if isinstance(target, str) else target
        if not callable(target):
            raise UsageError(f'{self.key} = "{use}" is a {type(target).__name__}: name a class or a function')
        if self.factory or not isinstance(target, type):
            self._check_call(use, target, self.arguments, options)
            return partial(target, **options)
        self._check_call(use, target, (), options)
        made: object = _create(self.key, target, options)
        if not callable(made):
            raise UsageError(f"{self.key}: Palestra calls {use}(…)({', '.join(self.arguments)}), but the class has no __call__")
        return made

    def _check_call(self, use: str, target: Any, arguments: tuple[str, ...], options: Mapping[str, Any]) -> None:
        try:
            signature = inspect.signature(target)
        except ValueError:  # some callables written in C have none
            return
        only_position, both, only_name = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        open_ended = Parameter.VAR_KEYWORD in kinds.values()
        taken = [name for name, kind in kinds.items() if kind in (only_position, both)][: len(arguments)]
        accepted = [name for name, kind in kinds.items() if kind in (both, only_name) and name not in taken]
        for option in () if open_ended else options:
            if option not in accepted:
                import difflib

                near = difflib.get_close_matches(option, accepted, 1, 0.6)
                hint = f"Did you mean {near[0]}?" if near else f"It takes {', '.join(accepted) or 'no keywords'}."
                raise UsageError(f'{self.key}: {use} has no keyword "{option}". {hint}')
        try:
            signature.bind(*arguments, **options)
        except TypeError as error:
            call = ", ".join([*arguments, *(f"{name}=…" for name in options)])
            raise UsageError(f"{self.key}: Palestra calls {use}({call}), and that fails: {error}") from None


def _create(key: str, target: type, options: Mapping[str, Any]) -> Any:
    if not issubclass(target, msgspec.Struct):
        return target(**options)
    try:
        return msgspec.convert(options, target)
    except msgspec.ValidationError as error:
        raise UsageError(f"{key}: {error}") from None
