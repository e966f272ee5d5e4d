"""``palestra new``: write a package to start from. What it writes passes its own tests and ``palestra check``, and trains."""

import importlib.util
import keyword
import re
import shlex
from importlib import resources
from importlib.resources.abc import Traversable
from operator import attrgetter
from pathlib import Path

import typer

from palestra.cli.options import out_option
from palestra.cli.results import JSON, show
from palestra.errors import UsageError
from palestra.foundation.installation import how_to_install
from palestra.registry import list_envs

__all__ = ["app", "new_env"]

app = typer.Typer(no_args_is_help=True)
_SUFFIX = ".txt"
"""Templates end with it, so that no tool takes them for code of this package."""


@app.callback()
def _new() -> None:
    pass


@app.command("env")
def env_command(
    name: str = typer.Argument(..., help="Name of the package: letters, digits, hyphens and underscores."),
    out: Path | None = out_option("Folder to create; by default NAME in the working folder."),
    as_json: bool = JSON,
) -> None:
    """Write a package with an environment, its ids, tests, a README and a training recipe.

    The package works as written: its tests and `palestra check` pass, and a tiny model trains on it.
    """
    folder = out or Path(name)
    files = new_env(name, folder)
    data = {"folder": str(folder), "files": [str(file) for file in files]}
    show(as_json, data, "\n".join([f"wrote {len(files)} files into {folder}", "", *_next(folder, name)]))


def new_env(name: str, folder: Path) -> list[Path]:
    """Write the package ``name`` into the new folder ``folder`` and return its files.

    Raises:
        UsageError: The name is not that of a package, or another environment has its namespace, or the folder exists.

    """
    package = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package) or keyword.iskeyword(package):
        raise UsageError(
            f'"{name}" is not the name of a package: begin with a lower-case letter, then use lower-case letters, digits, '
            f"hyphens and underscores"
        )
    if package == "palestra" or list_envs(f"{package}:*"):
        raise UsageError(f'the namespace "{package}" is taken: choose another name (`palestra list` shows the namespaces)')
    if folder.exists():
        raise UsageError(f"{folder} exists already: name a new folder with --out")
    filling = {"name": name, "package": package, "class": _class(package), "id": _id(package)}
    written = []
    for path, text in _templates(resources.files(__package__).joinpath("templates", "env"), Path()):
        target = folder / Path(*(package if part == "package" else part for part in path.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(re.sub(r"\{(name|package|class|id)\}", lambda mark: filling[mark[1]], text), encoding="utf-8")
        written.append(target)
    return written


def _templates(folder: Traversable, path: Path) -> list[tuple[Path, str]]:
    """Every template below ``folder``: its path without the suffix, and its text."""
    templates: list[tuple[Path, str]] = []
    for entry in sorted(folder.iterdir(), key=attrgetter("name")):
        if entry.is_dir():
            templates += _templates(entry, path / entry.name)
        elif entry.name.endswith(_SUFFIX):
            templates.append((path / entry.name.removesuffix(_SUFFIX), entry.read_text(encoding="utf-8")))
    return templates


def _class(package: str) -> str:
    return "".join(part.capitalize() for part in package.split("_") if part)


def _id(package: str) -> str:
    return f"{package}:{_class(package)}-v0"


def _next(folder: Path, name: str) -> list[str]:
    id = f"{_id(name.replace('-', '_'))}-easy"
    return [
        "What to do next:",
        f"  cd {shlex.quote(str(folder))}",
        '  pip install --editable ".[test]"',
        f"  palestra play {id}",
        "  python -m pytest",
        *_training(),
    ]


def _training() -> list[str]:
    """How to train on the package: first the packages that training needs, where they are missing."""
    if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers") and importlib.util.find_spec("peft"):
        return ["  palestra train train.toml steps=2"]
    return ["", "To train a tiny model on it:", f"  {how_to_install('train')}", "  palestra train train.toml steps=2"]
