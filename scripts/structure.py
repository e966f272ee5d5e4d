#!/usr/bin/env python
"""Print how the package is cut: sizes, names, imports, and how far a recipe travels. It prints and never fails.

    python scripts/structure.py           # about ten seconds
    python scripts/structure.py --trace   # also trains one step of cpu/demo and names the rooms that see its recipe

A room is a folder with Python files. Code lines are lines without blank lines, comments and docstrings. A function is a helper
named once if its private name appears in its own file only where it is defined and in one other place.
"""

import argparse
import ast
import io
import re
import statistics
import sys
import tempfile
import threading
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "palestra"
GENERIC = ("one", "found", "place", "known", "said", "thing", "whole", "own")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Room(NamedTuple):
    """What was counted in one room, or in all."""

    code: int
    comments: int
    functions: list[int]
    """The length of each function in lines."""
    named_once: int
    bound: Counter[str]
    """How often each name is bound: assigned, a parameter, or the target of a loop."""


def measured(paths: list[Path]) -> Room:
    """Count what the files at ``paths`` hold."""
    code = comments = named_once = 0
    functions: list[int] = []
    bound: Counter[str] = Counter()
    for path in paths:
        source = path.read_text()
        tree = ast.parse(source)
        commented, coded = _lines(source, tree)
        code += coded
        comments += commented
        words = Counter(re.findall(r"\w+", source))
        for node in ast.walk(tree):
            if isinstance(node, Function):
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
                if node.name.startswith("_") and not node.name.startswith("__"):
                    named_once += words[node.name] == 2
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] += 1
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
    return Room(code, comments, functions, named_once, bound)


def _lines(source: str, tree: ast.Module) -> tuple[int, int]:
    """Return how many lines hold a comment alone, and how many hold code."""
    strings: set[int] = set()
    for node in ast.walk(tree):  # docstrings, and the sentences under fields
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    coded: set[int] = set()
    commented: set[int] = set()
    layout = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            commented.add(token.start[0])
        elif token.type not in layout:
            coded.update(range(token.start[0], token.end[0] + 1))
    return len(commented), len(coded - strings)


def imports() -> dict[str, set[str]]:
    """Module → the modules of the package that it imports, wherever in the file the import stands."""
    names = {_module(path): path for path in PACKAGE.rglob("*.py")}
    edges: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                submodules = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [target if target in names else node.module for target in submodules]
            edges[name].update(target for target in targets if target in names and target != name)
    return edges


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others. Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(edges.get(module, ())):
            if target not in index:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == index[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(group)

    sys.setrecursionlimit(10_000)
    for module in sorted(edges):
        if module not in index:
            visit(module)
    return groups


def climbs(edges: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports that go up, by the layers in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["name"] == "imports only fall")
    height = {name.strip(): -row for row, layer in enumerate(layers) for name in layer.split("|")}

    def layer_of(module: str) -> int | None:
        return height.get(".".join(module.split(".")[:2]))

    return [
        (module, target)
        for module, targets in sorted(edges.items())
        for target in sorted(targets)
        if (low := layer_of(module)) is not None and (high := layer_of(target)) is not None and high > low
    ]


def shared_classes() -> dict[str, list[str]]:
    """Public class names that stand in two or more files."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(path.relative_to(PACKAGE)))
    return {name: places for name, places in sorted(files.items()) if len(places) > 1}


def rooms_of_the_recipe() -> dict[str, set[str]]:
    """Room → the classes of options that its frames held between ``train()`` and the first update of the learner."""
    import msgspec

    from palestra.training import resolve, train

    config = resolve("cpu/demo", ["steps=1"])
    options = {type(config)}
    pending: list[Any] = [config]
    while pending:
        for value in msgspec.structs.asdict(pending.pop()).values():
            if isinstance(value, msgspec.Struct) and type(value).__module__.startswith("palestra."):
                options.add(type(value))
                pending.append(value)
    rooms: dict[str, set[str]] = defaultdict(set)
    updated = threading.Event()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        # At its return, a frame holds its arguments and all that it has computed. A coroutine also returns where it waits.
        if event not in ("call", "return") or updated.is_set():
            return
        path = frame.f_code.co_filename
        if not path.startswith(str(PACKAGE)):
            return
        if event == "call":
            if frame.f_code.co_qualname.endswith("Learner.update"):
                updated.set()
            return
        held = {type(value).__name__ for value in frame.f_locals.values() if type(value) in options}
        if held:
            rooms[str(Path(path).parent.relative_to(PACKAGE))] |= held

    with tempfile.TemporaryDirectory() as folder:
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            train(config, Path(folder) / "run")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return rooms


def rows() -> Iterator[tuple[str, object]]:
    """Yield the counts of the package."""
    paths = sorted(PACKAGE.rglob("*.py"))
    room = measured(paths)
    lengths = sorted(room.functions)
    edges = imports()
    entries = [path for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))]
    bound = sum(room.bound.values())
    generic = sum(room.bound[name] for name in GENERIC)
    yield "code lines", room.code
    yield "functions per 1,000 code lines", round(1000 * len(lengths) / room.code)
    tenths = statistics.quantiles(lengths, n=10)
    yield "length of functions: median, 90 %, longest", f"{round(tenths[4])}, {round(tenths[8])}, {lengths[-1]}"
    yield "private helpers named once in their file, % of all functions", round(100 * room.named_once / len(lengths))
    yield "comment lines over code lines, %", round(100 * room.comments / room.code, 1)
    yield f"bound names per 1,000 that are generic ({', '.join(GENERIC)})", round(1000 * generic / bound)
    yield "public class names in two or more files", len(shared_classes())
    yield "entries of src/palestra: folders and modules", len(entries)
    yield "circles of imports", len(circles(edges))
    yield "imports that climb", len(climbs(edges))


def main() -> None:
    """Print the counts, per room too, and with ``--trace`` the rooms that see a recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="train one step of cpu/demo and follow its recipe")
    arguments = parser.parse_args()
    for what, value in rows():
        print(f"{value!s:>16}  {what}")
    print(f"\n{'code':>7}{'per 1k':>8}{'once %':>8}{'comment %':>11}  room")
    folders = sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE})
    for folder in folders:
        room = measured(sorted((PACKAGE / folder).rglob("*.py")))
        share = round(100 * room.named_once / max(len(room.functions), 1))
        comments = round(100 * room.comments / max(room.code, 1), 1)
        print(f"{room.code:>7}{round(1000 * len(room.functions) / max(room.code, 1)):>8}{share:>8}{comments:>11}  {folder}")
    if arguments.trace:
        rooms = rooms_of_the_recipe()
        full = [room for room, held in rooms.items() if "TrainConfig" in held]
        print(f"\n{len(rooms)} rooms see the recipe or a part of it before the first update, {len(full)} all of it:")
        for room_name, held in sorted(rooms.items()):
            print(f"    {room_name}: {', '.join(sorted(held))}")


if __name__ == "__main__":
    main()
