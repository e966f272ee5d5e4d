"""Recipes: what a training run may be told, without the parts that do it. Nothing here needs torch.

``config`` holds ``TrainConfig``; ``algorithms``, ``model``, ``learner``, ``engine`` and ``play`` hold the options of its parts;
``reading`` turns a file, a preset and overrides into a ``TrainConfig``. The shipped recipes are in ``files``, the settings of
papers in ``presets``.
"""

from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import resolve

__all__ = ["TrainConfig", "resolve"]
