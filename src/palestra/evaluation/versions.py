"""Fingerprints of the code that played and graded, so that a later run can be compared with it.

A version number says little about an environment that is under development. So a run also keeps, for each environment, a hash
of the source of its class (with those it inherits from, the wrappers of its id, the level's parameters and a grader of the user
that they name), and one of the package of graders. Equal fingerprints mean the same source; what that source imports from
elsewhere is named by its package's version.
"""

import hashlib
import inspect
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from palestra import core, registry
from palestra.errors import PalestraError
from palestra.foundation.encoding import encode_json, tame
from palestra.foundation.references import is_reference

__all__ = ["UNKNOWN", "environment_versions", "package_versions"]

UNKNOWN = "unknown"
"""Replaces the fingerprint if the environment cannot be found or has none on record."""

_DIGITS = 16


def package_versions() -> dict[str, str]:
    """The versions of this package, its graders, Python and NumPy."""
    return {"palestra": _own_version(), "graders": _graders(), "python": platform.python_version(), "numpy": np.__version__}


@cache  # it parses the whole metadata, the README among them
def _own_version() -> str:
    try:
        return metadata.version("palestra")
    except metadata.PackageNotFoundError:
        return "not installed"


def environment_versions(envs: Iterable[str], factory: Callable[..., Any] | None = None) -> dict[str, str]:
    """Id → fingerprint. ``factory`` is the class, if the caller has one that cannot be imported by name."""
    return {env: _fingerprint(env, factory) for env in envs}


def _fingerprint(env: str, factory: Callable[..., Any] | None) -> str:
    if factory is not None:
        return _digest(_sources(factory))
    try:
        spec = registry.spec(env)
        sources = _sources(spec.factory(spec.kwargs))
        rows = spec.read_rows()
    except PalestraError:
        return UNKNOWN  # its episodes fail with the reason
    wrappers = [source for wrapper in spec.wrappers for source in _sources(getattr(wrapper, "func", wrapper))]
    data = [] if rows is None else [rows.sha256.encode()]
    named = [_source_of(module) for module in _named_modules(spec.kwargs)]
    return _digest([*sources, *wrappers, *data, *named, encode_json(tame(dict(spec.kwargs)))])


def _named_modules(kwargs: Mapping[str, Any]) -> list[str]:
    """The modules that references among ``kwargs`` name, such as a grader of the user. Nothing is imported."""
    names = [value.partition(":")[0] for value in kwargs.values() if isinstance(value, str) and is_reference(value)]
    return [name for name in names if name in sys.modules]


def _sources(factory: Callable[..., Any]) -> list[bytes]:
    """The source files of ``factory`` and of its base classes, without those of the contract."""
    classes = [kind for kind in inspect.getmro(factory) if kind is not object] if isinstance(factory, type) else [factory]
    modules = {kind.__module__ for kind in classes} - {core.__name__, "abc"}
    return [_source_of(module) for module in sorted(modules)]


@cache
def _source_of(module: str) -> bytes:
    # A class defined in a notebook has no file: use its name.
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).read_bytes() if file is not None and Path(file).is_file() else module.encode()


@cache
def _graders() -> str:
    files = sorted((file for file in resources.files("palestra.grading").iterdir() if file.name.endswith(".py")), key=str)
    return _digest(file.read_bytes() for file in files)


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(encode_json([hashlib.sha256(part).hexdigest() for part in parts])).hexdigest()[:_DIGITS]
