"""The box: where model-written code runs, with limits on by default.

``open_sandbox()`` gives bubblewrap boxes; ``docker`` and ``runsc`` are there by name, and so is ``unboxed``, which warns.
There is no fall-back: where bubblewrap is missing, the error says what to install.
"""

from typing import Any

from palestra.errors import UsageError
from palestra.references import resolve
from palestra.sandbox.contract import KilledBy, Limits, Outcome, Program, Sandbox, Session, Usage
from palestra.sandbox.local import Bubblewrap, Unboxed

__all__ = [
    "Bubblewrap",
    "KilledBy",
    "Limits",
    "Outcome",
    "Program",
    "Sandbox",
    "Session",
    "Unboxed",
    "Usage",
    "open_sandbox",
]

_PROVIDERS = {
    "bubblewrap": "palestra.sandbox.local:Bubblewrap",
    "docker": "palestra.sandbox.containers:Docker",
    "runsc": "palestra.sandbox.containers:Runsc",
    "unboxed": "palestra.sandbox.local:Unboxed",
}


def open_sandbox(name: str = "bubblewrap", *, limits: Limits | None = None, **options: Any) -> Sandbox:
    """The provider called ``name``, or the one that a ``module:Class`` names. Use it as an async context manager."""
    entry = _PROVIDERS.get(name, name)
    if ":" not in entry:
        raise UsageError(f"no sandbox {name!r}: there are {', '.join(_PROVIDERS)}, and module:Class for your own")
    made = resolve(entry)(limits=limits, **options)
    if not isinstance(made, Sandbox):
        raise UsageError(f"{name} built a {type(made).__name__}, which is not a Sandbox")
    return made
