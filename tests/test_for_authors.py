"""The modules that are open to authors of environments, docs/reference/for-authors.md: Palestra's own worlds use no others."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "for-authors.md"
WORLDS = ROOT / "src" / "palestra" / "worlds"
AUTHORING = ROOT / "src" / "palestra" / "authoring"


@cache
def open_names() -> dict[str, frozenset[str]]:
    """The modules of the page's table, and the names that it opens. No names mean all of ``__all__``."""
    rows = re.findall(r"^\| `(palestra[\w.]*)` \| ([^|]*) \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    return {module: frozenset(re.findall(r"`(\w+)`", names)) for module, names in rows}


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """The names that a module imports from Palestra, each with its module. ``import module`` takes the name ``*``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "palestra":
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "*") for alias in node.names if alias.name.partition(".")[0] == "palestra")


def closed_imports(source: str) -> list[str]:
    """The imports of a module that the page does not open."""
    return [
        f"{module}.{name}"
        for module, name in imports_of(source)
        if not module.startswith("palestra.worlds.")
        and name not in (open_names().get(module, frozenset()) or _public_names(module))
    ]


@cache
def _public_names(module: str) -> frozenset[str]:
    return frozenset(import_module(module).__all__) if module in open_names() else frozenset()


@pytest.mark.parametrize("world", sorted(path.name for path in WORLDS.iterdir() if (path / "__init__.py").exists()))
def test_a_world_imports_only_modules_that_are_open_to_authors(world: str) -> None:
    files = sorted((WORLDS / world).rglob("*.py"))
    assert {str(file.relative_to(WORLDS)): closed for file in files if (closed := closed_imports(file.read_text()))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from palestra.rollouts import play",
        "from palestra.foundation.encoding import encode_json",
        "from palestra.sandbox.shell_box import ShellBox",
        "from palestra.registry import _specs",
        "import palestra.training",
    ],
)
def test_an_import_that_is_not_on_the_page_is_found(line: str) -> None:
    assert closed_imports(f"def later():\n    {line}\n")


def test_every_name_on_the_page_exists_and_is_public() -> None:
    for module, names in open_names().items():
        assert names <= set(import_module(module).__all__), module


def test_names_that_are_opened_one_by_one_are_used_by_a_world() -> None:
    used = {found for file in WORLDS.rglob("*.py") for found in imports_of(file.read_text())}
    unused = {f"{module}.{name}" for module, names in open_names().items() for name in names if (module, name) not in used}
    assert unused == set()


def test_the_page_lists_every_module_of_authoring() -> None:
    modules = {f"palestra.authoring.{path.stem}" for path in AUTHORING.glob("*.py") if path.stem != "__init__"}
    assert modules == {module for module in open_names() if module.startswith("palestra.authoring.")}


def test_authoring_loads_no_sandbox_and_exports_nothing_itself() -> None:
    modules = [module for module in open_names() if module.startswith("palestra.authoring.")]
    code = (
        "import sys, palestra.authoring\n"
        "assert not [name for name in vars(palestra.authoring) if not name.startswith('_')]\n"
        "assert not [name for name in sys.modules if name.startswith('palestra.authoring.')]\n"
        f"import {', '.join(modules)}\n"
        "assert not [name for name in sys.modules if name.startswith('palestra.sandbox')]\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "src")}, check=True)


@pytest.mark.parametrize("room", ["bridges", "worlds"])
def test_no_class_behind_the_seam_has_the_name_of_a_class_that_is_open_to_authors(room: str) -> None:
    exported = [(module, name) for module in open_names() for name in import_module(module).__all__]
    classes = {name for module, name in exported if isinstance(getattr(import_module(module), name), type)}
    files = sorted((ROOT / "src" / "palestra" / room).rglob("*.py"))
    defined = {
        (node.name, file.name) for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
    }
    assert {(name, file) for name, file in defined if name in classes} == set()
