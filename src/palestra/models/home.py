"""Where fetched and built models lie: ``$PALESTRA_HOME/models``, by default in the user's cache folder."""

import os
from pathlib import Path

__all__ = ["model_home"]


def model_home() -> Path:
    """The folder of all model folders, made if need be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(os.environ.get("PALESTRA_HOME") or Path(cache) / "palestra") / "models"
    home.mkdir(parents=True, exist_ok=True)
    return home
