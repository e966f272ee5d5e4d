"""Which code played and graded: fingerprints that a later reader can compare.

A version number says little of an environment that somebody is writing. So a run also keeps, for each environment, a hash of
the source of its class (with those it inherits from, the wrappers of its id and the level's parameters), and one of the package
of graders. Equal fingerprints mean the same source; what that source imports from elsewhere is named by its package's version.
"""

import hashlib
import inspect
import platform
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from palestra import core, registry
from palestra.encoding import encode_json, tame
from palestra.errors import PalestraError

__all__ = ["UNKNOWN", "environment_versions", "package_versions"]

UNKNOWN = "unknown"
"""Instead of a fingerprint, where the environment cannot be found or nobody noted one."""

_DIGITS = 16


def package_versions() -> dict[str, str]:
    """Of what runs everything: this package, its graders, Python, NumPy."""
    try:
        own = metadata.version("palestra")
    except metadata.PackageNotFoundError:
        own = "not installed"
    return {"palestra": own, "graders": _graders(), "python": platform.python_version(), "numpy": np.__version__}


def environment_versions(envs: Iterable[str], factory: Callable[..., Any] | None = None) -> dict[str, str]:
    """Id → fingerprint. ``factory`` is the class itself where the caller has it and its name leads nowhere."""
    return {env: _fingerprint(env, factory) for env in envs}


def _fingerprint(env: str, factory: Callable[..., Any] | None) -> str:
    if factory is not None:
        return _digest(_sources(factory))
    try:
        known = registry.spec(env)
        own = _sources(known.factory(known.kwargs))
    except PalestraError:
        return UNKNOWN  # its episodes will fail, and say why
    wrappers = [source for wrapper in known.wrappers for source in _sources(getattr(wrapper, "func", wrapper))]
    return _digest([*own, *wrappers, encode_json(tame(dict(known.kwargs)))])


def _sources(factory: Callable[..., Any]) -> list[bytes]:
    """The files in which ``factory`` and the classes it inherits from are written, without the contract itself."""
    classes = [kind for kind in inspect.getmro(factory) if kind is not object] if isinstance(factory, type) else [factory]
    modules = {kind.__module__ for kind in classes} - {core.__name__, "abc"}
    return [_source_of(module) for module in sorted(modules)]


@cache
def _source_of(module: str) -> bytes:
    # A class typed into a notebook has no file: then its name is all there is.
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).read_bytes() if file is not None and Path(file).is_file() else module.encode()


@cache
def _graders() -> str:
    files = sorted((file for file in resources.files("palestra.grading").iterdir() if file.name.endswith(".py")), key=str)
    return _digest(file.read_bytes() for file in files)


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(encode_json([hashlib.sha256(part).hexdigest() for part in parts])).hexdigest()[:_DIGITS]
