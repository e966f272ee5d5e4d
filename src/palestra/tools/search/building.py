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
def built_beside(place: Path) -> Iterator[Path]:
    """An empty folder that becomes ``place``, which must not exist, at the end of the block. An exception removes it."""
    if place.exists():
        raise UsageError(f"{place} exists already: name another folder, or remove it")
    place.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        yield building
        building.chmod(0o755)
        _give_name(building, place)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _give_name(building: Path, place: Path) -> None:
    try:
        building.rename(place)
    except OSError as error:
        if not place.exists():
            raise
        raise UsageError(f"{place} was made by another process meanwhile ({error.strerror}): use it, or remove it") from None
