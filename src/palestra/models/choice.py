"""Model names that need no folder: ``smollm2`` is fetched, ``tiny:ID`` is built for the environment ``ID``.

Anything else is a folder or a hub's name and is left as it is.
"""

import re
from pathlib import Path

from palestra.models.home import model_home
from palestra.models.smollm2 import fetch_smollm2
from palestra.models.tiny import build_tiny

__all__ = ["find_model"]

_TINY = "tiny:"


def find_model(name: str) -> str | Path:
    """What ``from_pretrained`` takes for ``name``; a model of ours is made the first time it is asked for."""
    if name == "smollm2":
        return fetch_smollm2()
    if name.startswith(_TINY):
        env = name.removeprefix(_TINY)
        return build_tiny(model_home() / re.sub(r"[^\w.-]", "-", name), envs=env, words=0)
    return name
