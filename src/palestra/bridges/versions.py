"""The version of each framework that its adapter was tried with, and errors that name it.

An adapter asks ``framework`` for a module of the other package and the names in it that it uses. If the package is missing, or
has another interface, the message names the version that was tried, the version that is installed, and what to type. Some
adapters import nothing: the framework calls their functions, and passes its objects. ``called_by`` and ``reading`` check these.

The versions are those of ``constraints/``, which the contract tests install.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install

__all__ = ["TRIED", "Tried", "called_by", "framework", "reading"]

_F = TypeVar("_F", bound=Callable[..., Any])


class Tried(NamedTuple):
    """A distribution, the version that was tried, and how to install it."""

    package: str
    version: str
    how: str = ""
    """By default ``pip install "PACKAGE==VERSION"``."""
    extra: str = ""
    """The extra of Palestra that brings it, instead."""

    @property
    def fix(self) -> str:
        """What to type."""
        if self.extra:
            return how_to_install(self.extra)
        return self.how or f'pip install "{self.package}=={self.version}"'


TRIED = {
    "agent_lightning": Tried("agentlightning", "0.3.0"),
    "areal": Tried("areal", "1.0.4"),
    "art": Tried("openpipe-art", "0.5.18"),
    "gem": Tried("gem-llm", "0.1.0"),
    "gymnasium": Tried("gymnasium", "1.4.0", extra="gymnasium"),
    "harbor": Tried("harbor", "0.25.0", 'pip install "harbor==0.25.0", on Python 3.12'),
    "inspect": Tried("inspect-ai", "0.3.285"),
    "nemo_gym": Tried("nemo-gym", "0.4.0", 'pip install "nemo-gym==0.4.0", on Python 3.12'),
    "openenv": Tried("openenv-core", "0.3.0", extra="openenv"),
    "openrlhf": Tried("openrlhf", "0.11.2"),
    "rl2": Tried("rl-square", "0.0.2"),
    "skyrl": Tried("skyrl", "0.4.0", 'pip install "skyrl==0.4.0" "skyrl-gym==0.4.0"'),
    "skyrl_rows": Tried("skyrl-gym", "0.4.0"),
    "slime": Tried("slime", "commit 624b824", "install that commit of THUDM/slime from GitHub"),
    "textarena": Tried("textarena", "0.7.4"),
    "tinker": Tried("tinker-cookbook", "0.5.8", 'pip install "tinker==0.36.0" "tinker-cookbook==0.5.8"'),
    "trl": Tried("trl", "1.16.0"),
    "verifiers": Tried("verifiers", "0.4.0"),
    "verl": Tried("verl", "0.9.1"),
}
"""By the name of the bridge: its file in ``constraints/``, if it has one."""


def framework(bridge: str, module: str, *names: str) -> Any:
    """Import ``module`` of the framework of ``bridge``, and check that it has ``names``.

    Raises:
        MissingExtra: The framework is not installed, or its version has no such module or names.
    """
    try:
        imported = importlib.import_module(module)
    except ImportError as error:
        raise _other(bridge, f"{module} cannot be imported ({error})") from error
    for name in names:
        if not hasattr(imported, name):
            raise _other(bridge, f"{module} has no {name}")
    return imported


def called_by(bridge: str) -> Callable[[_F], _F]:
    """Mark a function that the framework calls: a call with other arguments raises ``MissingExtra`` with the version."""

    def marked(function: _F) -> _F:
        signature = inspect.signature(function)

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise _other(bridge, f"{function.__name__}() is called with other arguments ({error})") from error
            return function(*args, **kwargs)

        return called  # type: ignore[return-value]

    return marked


@contextmanager
def reading(bridge: str) -> Iterator[None]:
    """Raise ``MissingExtra`` with the version if an object of the framework lacks an attribute that the block reads."""
    try:
        yield
    except AttributeError as error:
        raise _other(bridge, str(error)) from error


def _other(bridge: str, why: str) -> MissingExtra:
    """Return the error: what was tried, what is installed, why that does not do, and what to type."""
    tried = TRIED[bridge]
    from importlib.metadata import PackageNotFoundError, version  # not at import: it costs a tenth of import palestra

    try:
        installed = f"{tried.package} {version(tried.package)} is installed"
    except PackageNotFoundError:
        installed = f"{tried.package} is not installed"
    return MissingExtra(
        f"this bridge was tried with {tried.package} {tried.version}; {installed}: {why}. To mend it: {tried.fix}"
    )
