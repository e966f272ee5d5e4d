"""Names for Python objects: ``module:qualname``, the form entry points use.

A reference can be written into a task, sent to a worker process or typed on a command line; a callable cannot.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from palestra.errors import UsageError

__all__ = ["load_main", "reference_of", "resolve"]

_LOADED_MAIN = "__palestra_main__"


def resolve(reference: str) -> Any:
    """The object that ``module:qualname`` names."""
    module_name, _, qualname = reference.partition(":")
    if not module_name or not qualname:
        raise UsageError(f"{reference!r} is not a reference; write module:Name")
    found: Any = importlib.import_module(module_name)
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise UsageError(f"module {module_name!r} has no {qualname!r}") from None
    return found


def reference_of(target: Callable[..., Any]) -> str:
    """The reference of ``target``, or ``UsageError`` if another process could not find it by that name."""
    module_name = getattr(target, "__module__", None)
    if module_name == _LOADED_MAIN:
        raise UsageError(
            "a worker process is importing this script to find its classes, and the script starts episodes meanwhile: "
            'put what it runs under `if __name__ == "__main__":`'
        )
    qualname = getattr(target, "__qualname__", type(target).__qualname__)
    reference = f"{module_name}:{qualname}"
    found: Any = sys.modules.get(module_name or "")
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is not target:
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
        del sys.modules[_LOADED_MAIN]  # so that the next one to ask is told the same
        raise
