"""What the worlds take on the disk: ``pip install "palestra[worlds]"`` in a clean virtual environment.

pip builds the wheel from this checkout and installs it with the extra, with the versions that the package index offers today.
All of ``site-packages`` counts, pip included. The rows without a limit show who takes most. ``--quick`` uses no network: it
adds up the files of the packages that the extra requires, as they are installed here.
"""

import importlib.metadata
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from rows import Row

ROOT = Path(__file__).parents[1]
LIMIT = "<= 250"
SHOWN = 6


def rows(quick: bool) -> list[Row]:
    """The size of everything, and of the largest parts."""
    what = "packages that palestra[worlds] requires, as installed here: MB" if quick else 'pip install "palestra[worlds]": MB'
    sizes = _installed_here() if quick else _clean_install()
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    return [Row(what, sum(sizes.values()), LIMIT), *(Row(f"of these, {name}", sizes[name], "") for name in largest)]


def _clean_install() -> dict[str, float]:
    """MB on the disk per folder or file of ``site-packages``."""
    with tempfile.TemporaryDirectory() as scratch:
        _run(sys.executable, "-m", "venv", f"{scratch}/venv")
        _run(f"{scratch}/venv/bin/pip", "install", "--disable-pip-version-check", f"{ROOT}[worlds]")
        (packages,) = Path(scratch).glob("venv/lib/python*/site-packages")
        return {path.name: _megabytes(path) for path in packages.iterdir()}


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr}")


def _megabytes(path: Path) -> float:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(os.stat(file).st_blocks * 512 for file in files) / 2**20


def _installed_here() -> dict[str, float]:
    sizes = {}
    for name in _required("palestra", frozenset({"worlds"}), set()):
        found = importlib.metadata.distribution(name)
        files = [Path(str(found.locate_file(file))) for file in found.files or ()]
        sizes[name] = sum(os.stat(file).st_blocks * 512 for file in files if file.is_file()) / 2**20
    return sizes


def _required(name: str, extras: frozenset[str], seen: set[str]) -> Iterator[str]:
    """The packages that ``name`` with ``extras`` requires, each once."""
    declared = _declared() if name == "palestra" else importlib.metadata.requires(name) or []
    for requirement in map(Requirement, declared):
        asked = not requirement.marker or any(requirement.marker.evaluate({"extra": extra}) for extra in (extras or {""}))
        if asked and requirement.name not in seen:
            seen.add(requirement.name)
            yield requirement.name
            yield from _required(requirement.name, frozenset(requirement.extras), seen)


def _declared() -> list[str]:
    """The requirements of this checkout: those of the installed package may be older."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["worlds"]]
