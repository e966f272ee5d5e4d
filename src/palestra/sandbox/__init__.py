"""Sandboxes: boxes in which model-written code runs, with limits on by default.

``open_sandbox()`` returns bubblewrap boxes. ``docker`` and ``runsc`` are available by name, and so is ``unboxed``, which warns.
There is no fallback: if bubblewrap is missing, the error names the package to install.
"""

from typing import Any

from palestra.errors import UsageError
from palestra.foundation.references import resolve
from palestra.sandbox.contract import KilledBy, Limits, Outcome, Program, ResourceUsage, Sandbox, SandboxSession
from palestra.sandbox.local import Bubblewrap, Unboxed

__all__ = [
    "Bubblewrap",
    "KilledBy",
    "Limits",
    "Outcome",
    "Program",
    "ResourceUsage",
    "Sandbox",
    "SandboxSession",
    "Unboxed",
    "open_sandbox",
]

_PROVIDERS = {
    "bubblewrap": "palestra.sandbox.local:Bubblewrap",
    "docker": "palestra.sandbox.containers:Docker",
    "runsc": "palestra.sandbox.containers:Runsc",
    "unboxed": "palestra.sandbox.local:Unboxed",
}


def open_sandbox(name: str = "bubblewrap", *, limits: Limits | None = None, **options: Any) -> Sandbox:
    """Return the provider called ``name``, or the one at ``module:Class``. Use it as an async context manager."""
    entry = _PROVIDERS.get(name, name)
    if ":" not in entry:
        raise UsageError(f"no sandbox {name!r}: choose from {', '.join(_PROVIDERS)}, or name your own as module:Class")
    made = resolve(entry)(limits=limits, **options)
    if not isinstance(made, Sandbox):
        raise UsageError(f"{name} returned a {type(made).__name__}, which is not a Sandbox")
    return made
