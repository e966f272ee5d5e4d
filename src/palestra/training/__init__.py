"""Trajectories to weights. Read in the order of the flow: ``groups``, ``advantage``, ``batch``, ``loss``, ``learner``.

``groups``, ``advantage``, ``horizon`` and ``ledger`` are NumPy and the standard library only; torch is imported by the modules
that need it and by nothing here, so that the mathematics can be read, tested and used without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.training.assembly import train
    from palestra.training.config import TrainConfig
    from palestra.training.recipe import load_recipe

__all__ = ["TrainConfig", "load_recipe", "train"]


def __getattr__(name: str) -> Any:
    homes = {"TrainConfig": "config", "load_recipe": "recipe", "train": "assembly"}
    if name in homes:
        from importlib import import_module

        return getattr(import_module(f"palestra.training.{homes[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
