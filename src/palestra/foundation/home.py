"""The user's Palestra folder, ``$PALESTRA_HOME`` or ``palestra`` in the cache folder, and the models in it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.errors import UsageError

__all__ = ["home_folder", "is_model", "model_home", "new_model"]


def home_folder(name: str) -> Path:
    """Return the path of the folder ``name`` in the user's Palestra folder. Creates nothing."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PALESTRA_HOME") or Path(cache) / "palestra") / name


def model_home() -> Path:
    """Return the folder of all model folders, and create it if it does not exist."""
    home = home_folder("models")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {home}: {error.strerror}. Name another folder with PALESTRA_HOME") from None
    return home


def is_model(folder: Path) -> bool:
    """Whether ``folder`` holds a complete model."""
    return (folder / "model.safetensors").exists()


def _is_model_alone(folder: Path) -> bool:
    """Whether ``folder`` holds a model, in one file or several, and no folder that is not part of it."""
    there = folder.is_dir() and (folder / "config.json").exists() and any(folder.glob("model*.safetensors"))
    return there and not any(path.is_dir() for path in folder.iterdir())


@contextmanager
def new_model(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a draft folder that is renamed to ``folder`` at the end of the block, so a model folder is complete or absent.

    Each caller has its own draft. If two processes make the same model, the first to finish wins, and the other draft is
    removed. ``replace`` removes a model that ``folder`` holds, once the draft is complete.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())) and not (replace and _is_model_alone(folder)):
        raise UsageError(f"{folder} exists and is not a model: name another folder with --out")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write into {folder.parent}: {error.strerror}. Name another folder with --out") from None
    try:
        yield draft
        draft.chmod(0o755)
        if replace and _is_model_alone(folder):
            shutil.rmtree(folder)
        try:
            draft.rename(folder)
        except OSError:
            if not is_model(folder):
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
