"""Imports at first use: names of packages that every ``import palestra`` passes through, and modules while a command runs."""

import signal
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["import_uninterrupted", "lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of ``package``.

    Args:
        package: The ``__name__`` of the package.
        homes: Name → the module of the package that defines it.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find


def import_uninterrupted(name: str) -> ModuleType:
    """Import the module ``name``. If Ctrl-C is typed meanwhile, raise ``KeyboardInterrupt`` when the import has ended.

    A library may swallow an exception that falls into its import, as the modules of NumPy that Cython compiles do: the command
    would continue. An event loop has a handler of its own, which raises nothing inside an import, and keeps it.
    """
    usual = signal.default_int_handler
    if (
        name in sys.modules
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) != usual
    ):
        return import_module(name)
    typed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: typed.append(number))
    try:
        return import_module(name)
    finally:
        signal.signal(signal.SIGINT, usual)
        if typed:
            raise KeyboardInterrupt
