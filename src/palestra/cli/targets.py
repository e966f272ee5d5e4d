"""Test before the work begins whether a command can write into its folder: an unwritable folder must not cost the whole run.

The test writes a temporary file, because permissions alone do not tell, and leaves nothing behind. Commands that write one file
use ``durable.replacing``, and commands that keep a run use ``durable.claim``; both make the same test.
"""

import tempfile
from pathlib import Path

from palestra.errors import UsageError

__all__ = ["check_folder"]


def check_folder(path: Path, option: str = "--out") -> Path:
    """Raise ``UsageError`` unless ``path`` is a writable folder or can be created as one. Returns ``path``."""
    try:
        # The folder itself is not created for the test: another command may be creating it at this moment.
        nearest = next(folder for folder in (path, *path.parents) if folder.exists())
        if not nearest.is_dir():
            raise UsageError(f"cannot write into {path}: {nearest} is a file, not a folder. Name another folder with {option}")
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise UsageError(f"cannot write into {path}: {error.strerror}. Name another folder with {option}") from None
    return path
