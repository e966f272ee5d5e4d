"""Model names that need no folder: ``smollm2`` is fetched; ``tiny:ID`` and ``tiny-words:ID`` are built for environment ``ID``.

Any other name is a folder or a name on the Hugging Face hub, and is returned unchanged.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from palestra.errors import UsageError
from palestra.foundation.home import is_model, model_home
from palestra.inference.models.smollm2 import fetch_smollm2
from palestra.inference.models.tiny import build_tiny

__all__ = ["find_finished_model", "find_model"]

_TINY: Mapping[str, Literal["phrase", "word"]] = {"tiny:": "phrase", "tiny-words:": "word"}
"""Prefix → what a token of the model is."""


def find_model(name: str) -> str | Path:
    """Return what ``from_pretrained`` takes for ``name``. A model that Palestra builds or fetches is made at the first use."""
    if name == "smollm2":
        return fetch_smollm2()
    for prefix, unit in _TINY.items():
        if name.startswith(prefix):
            return build_tiny(_tiny_folder(name), envs=name.removeprefix(prefix), words=0, unit=unit)
    return name


def find_finished_model(name: str) -> str | Path:
    """Return what ``find_model`` returns, but build nothing, because to build ``tiny:ID`` imports the environment ``ID``.

    Raises:
        UsageError: ``name`` is a ``tiny:ID`` or ``tiny-words:ID`` that has not been built on this machine.

    """
    if not name.startswith(tuple(_TINY)):
        return find_model(name)
    folder = _tiny_folder(name)
    if not is_model(folder):
        raise UsageError(f"{name} has not been built on this machine: resume the run once with palestra train, which builds it")
    return folder


def _tiny_folder(name: str) -> Path:
    return model_home() / re.sub(r"[^\w.-]", "-", name)
