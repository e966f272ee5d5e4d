"""The pages of the API reference: every name in the ``__all__`` of every module.

A page per package, and per package inside ``inference``, ``suite`` and ``worlds``, lists its modules; Zensical fills in
signatures, types and docstrings (mkdocstrings), which it reads without importing anything. Every name links to its source,
which the site has as text. The first page lists the names of ``palestra`` itself and where they are defined.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Module:
    """A module with a public face."""

    name: str
    names: tuple[str, ...]
    defined: dict[str, tuple[int, str]]
    """Those of ``names`` that are defined here, not imported: the number of the line, and how it begins."""
    file: str
    """Its path below ``src``."""
    homes: dict[str, str]
    """Imported name → where it comes from."""
    about: str

    @property
    def package(self) -> str:
        """The page on which the module stands: its package, in ``inference``, ``suite`` and ``worlds`` that of its part."""
        folders = Path(self.file).parts[1:-1]
        if not folders:
            return self.name.rpartition(".")[2]
        return ".".join(folders[:2]) if folders[0] in ("inference", "suite", "worlds") else folders[0]


def read(file: Path, source: Path) -> Module | None:
    """Return the public face of ``file``, or nothing if it has none."""
    text = file.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    parts = file.relative_to(source).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    names: tuple[str, ...] = ()
    defined: dict[str, tuple[int, str]] = {}
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            homes |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in tree.body:
        targets = assigned(node)
        defined |= dict.fromkeys(targets, (node.lineno, lines[node.lineno - 1]))
        if "__all__" in targets and isinstance(node, ast.Assign):
            names = tuple(ast.literal_eval(node.value))
    if not names:
        return None
    about = (ast.get_docstring(tree) or "").split("\n\n")[0]
    here = {one: found for one, found in defined.items() if one in names}
    return Module(name, names, here, file.relative_to(source).as_posix(), homes, " ".join(about.split()))


def assigned(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {node.target.id} if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else set()


def modules(source: Path) -> Iterator[Module]:
    """Yield every module with a public face."""
    for file in sorted((source / "palestra").rglob("*.py")):
        if found := read(file, source):
            yield found


def home(name: str, module: Module, known: dict[str, Module]) -> str:
    """Return the full name of the place where ``name`` is defined, through all its imports."""
    if name in module.defined or name not in module.homes:
        return f"{module.name}.{name}"
    target = module.homes[name]
    parent, _, last = target.rpartition(".")
    if target in known or parent not in known or known[parent] == module:
        return target
    return home(last, known[parent], known)


FAMILIES = ("suite", "worlds")
"""Packages whose pages stand together in the navigation."""


def write(put: Callable[[str, str], None], source: Path) -> list[dict[str, Any]]:
    """Write the pages, and return their part of the navigation."""
    known = {module.name: module for module in modules(source)}
    pages: dict[str, list[Module]] = {}
    for module in known.values():
        if module.name != "palestra":
            pages.setdefault(module.package, []).append(module)
    for package, inside in pages.items():
        put(f"api/{package}.md", page(package, inside, known))
        for module in inside:
            put(f"source/{module.file}.txt", (source / module.file).read_text())
    put("api/index.md", face(known, pages))
    families = [{f"palestra.{package}": f"api/{package}.md"} for package in pages if package.startswith(FAMILIES)]
    rest = [{f"palestra.{package}": f"api/{package}.md"} for package in pages if not package.startswith(FAMILIES)]
    return [{"palestra": "api/index.md"}, *rest, {"Families of environments": families}]


MADE = (
    "`{module}` makes `{name}` when it is first used, because it inherits from a class of another package. "
    "The text of the module above describes it."
)


def page(package: str, inside: list[Module], known: dict[str, Module]) -> str:
    """Return the page of one package."""
    lines = [f"# palestra.{package}", ""]
    for module in inside:
        if elsewhere := [name for name in module.names if name in module.homes and name not in module.defined]:
            targets = {name: home(name, module, known) for name in elsewhere}
            links = ", ".join(link(name, target, known) for name, target in targets.items())
            lines += [f"`{module.name}` has {links}, defined elsewhere.", ""]
        made = [name for name in module.names if name not in module.defined and name not in module.homes]
        if module.defined or made:
            lines += [f"::: {module.name}", "    options:", "      members: false", ""]
        for name, (line, beginning) in module.defined.items():
            lines += entry(module.name, name, beginning)
            lines += [f"[Source: `{module.file}`, line {line}]({source_link(module, beginning)}){{ .source }}", ""]
        for name in made:
            lines += [f"### `{name}` {{ #{module.name}.{name} }}", "", MADE.format(name=name, module=module.name), ""]
    return "\n".join(lines) + "\n"


def entry(module: str, name: str, beginning: str) -> list[str]:
    """Return the entry of a name. mkdocstrings does not find names of an assignment to several: their line is shown instead."""
    if re.match(r"\w+(, \w+)+ = ", beginning):
        return [f"### `{name}` {{ #{module}.{name} }}", "", "```python", beginning.rstrip(), "```", ""]
    return [f"::: {module}.{name}", "    options:", "      heading_level: 3", "      show_root_full_path: false", ""]


def source_link(module: Module, beginning: str) -> str:
    """Return the address of a line in the text of a module; browsers scroll to it and mark it."""
    return f"../source/{module.file}.txt#:~:text={quote(beginning.strip()[:60].rstrip('(: '), safe='')}"


def link(name: str, target: str, known: dict[str, Module]) -> str:
    """Return a reference that fails the build if nothing of this name is documented."""
    if target in known:
        return f"[`{name}`]({known[target].package}.md)"
    if target.rpartition(".")[0] == "palestra":  # a package without names of its own
        return f"[`{name}`]({target.removeprefix('palestra.')}.md)"
    return f"[`{name}`][{target}]"


def face(known: dict[str, Module], pages: dict[str, list[Module]]) -> str:
    """Return the first page: the names of ``palestra`` itself, and the packages."""
    top = known["palestra"]
    lines = [
        "# API reference",
        "",
        "Names that most programs need are in `palestra` itself:",
        "",
        "| name | defined in |",
        "|---|---|",
    ]
    for name in top.names:
        target = home(name, top, known)
        lines.append(f"| {link(name, target, known)} | `{target.rpartition('.')[0]}` |")
    lines += [
        "",
        "All packages, with every public name, its signature, its types and its source:",
        "",
        "| package | about |",
        "|---|---|",
    ]
    for package, inside in pages.items():
        first = next((one for one in inside if one.name == f"palestra.{package}"), inside[0])
        lines.append(f"| [`palestra.{package}`]({package}.md) | {first.about.replace('|', '/').replace('``', '`')} |")
    return "\n".join(lines) + "\n"
