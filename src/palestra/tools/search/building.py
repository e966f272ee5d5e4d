"""How an index gets its folder: built beside its place, and moved there when it is whole.

A build that was killed leaves nothing that looks like an index.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palestra.errors import UsageError

__all__ = ["built_beside"]


@contextmanager
def built_beside(target: Path) -> Iterator[Path]:
    """An empty folder that becomes ``target``, which must not exist, at the end of the block. An exception removes it."""
    if target.exists():
        raise UsageError(f"{target} exists already: name another folder, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield building
        building.chmod(0o755)
        _give_name(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _give_name(building: Path, target: Path) -> None:
    try:
        building.rename(target)
    except OSError as error:
        if not target.exists():
            raise
        raise UsageError(f"{target} was made by another process meanwhile ({error.strerror}): use it, or remove it") from None
