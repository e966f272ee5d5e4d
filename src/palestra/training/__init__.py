"""Trajectories to weights: a run, above a learner, above pure algorithms.

``algorithms``  pure functions: groups, advantages, losses, horizons, valid samples. Only losses need torch.
``learner``     the model, its batches, its optimizer and its ranks.

The modules of this folder are the run. Read them in this order: ``parts`` (what a recipe names), ``run`` (``train()``),
``assembly`` (builds a trainer), ``trainer`` (one step after the other), ``experience`` (groups to a batch). What a recipe holds
is in ``palestra.recipes``.

Importing this package does not import torch, so the mathematics can be read, tested and used without it.
"""

from typing import TYPE_CHECKING, Any

from palestra.foundation.references import hook
from palestra.recipes import TrainConfig, resolve

if TYPE_CHECKING:
    from palestra.training.algorithms.advantage import Credit
    from palestra.training.export import export_model
    from palestra.training.run import train

__all__ = ["Credit", "TrainConfig", "export_model", "hook", "resolve", "train"]


def __getattr__(name: str) -> Any:
    homes = {
        "Credit": "algorithms.advantage",
        "export_model": "export",
        "train": "run",
    }
    if name in homes:
        from importlib import import_module

        return getattr(import_module(f"palestra.training.{homes[name]}"), name)
    if name == "load_recipe":
        raise AttributeError("palestra.training.load_recipe is now palestra.training.resolve")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
