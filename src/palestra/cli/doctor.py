"""``palestra doctor``: what is installed, what each extra lacks, whether a sandbox starts, and how to fix what is missing."""

import asyncio
import os
import platform
import re
import time
from importlib import metadata
from typing import NamedTuple

import typer

from palestra import __version__
from palestra.cli.results import json_option
from palestra.errors import PalestraError
from palestra.foundation.encoding import encode_json
from palestra.foundation.installation import how_to_install
from palestra.registry import list_envs

__all__ = ["doctor_command"]


def doctor_command(
    as_json: bool = json_option("Print the findings as one JSON object."),
    gpu: bool = typer.Option(False, "--gpu", help="Show the GPUs instead, and what training needs beside them."),
    acceptance: bool = typer.Option(
        False, "--acceptance", help="Run the acceptance list for training instead: minutes; on a CPU with a tiny model."
    ),
    model: str | None = typer.Option(None, "--model", help="With --acceptance: a model folder, or a name on the hub."),
) -> None:
    """Show what is installed, what is missing, how to install it, and whether the sandbox for code works."""
    if gpu or acceptance:
        from palestra.cli.acceptance import acceptance_report, gpu_report

        gpu_report(as_json=as_json) if gpu else acceptance_report(model, as_json=as_json)
        return
    core = {name: _version(name) for name in _requirements(extra=None)}
    extras = {extra: {name: _version(name) for name in _requirements(extra)} for extra in _extras()}
    needs = {need.label: need.remedy for spec in list_envs() for need in spec.missing() if not need.extra}
    box = _try_box()
    if as_json:
        report = {"palestra": __version__, "core": core, "extras": extras, "needs": needs, "box": box._asdict()}
        typer.echo(encode_json(report).decode())
    else:
        _print(core, extras, needs, box)
    if None in core.values():
        raise typer.Exit(1)


class _Row(NamedTuple):
    """One finding, and what to type if something is missing: on a line of its own and unbroken, so that it can be copied."""

    good: bool
    text: str
    fix: str = ""


class _Box(NamedTuple):
    """Whether a sandbox worked, and what was seen of it."""

    works: bool
    seen: str


def _try_box() -> _Box:
    try:
        return asyncio.run(_run_in_box())
    except (PalestraError, OSError) as error:
        return _Box(False, str(error))


async def _run_in_box() -> _Box:
    from palestra.sandbox import Bubblewrap, Program
    from palestra.sandbox.cgroups import memory_hierarchy

    async with Bubblewrap(warm=0) as sandbox:
        began = time.monotonic()
        outcome = await sandbox.run(Program(code="import platform; print(platform.python_version())"))
        seconds = time.monotonic() - began
    if not outcome.ok:
        return _Box(False, f"the sandbox started, but the program in it failed: {outcome.killed_by or outcome.text.strip()}")
    hierarchy = memory_hierarchy()
    how = (
        f"a control group (version {hierarchy.version})"
        if hierarchy
        else "a watching process (this user may not create control groups)"
    )
    version = outcome.stdout.decode().strip()
    return _Box(True, f"Python {version} ran in a bubblewrap sandbox within {seconds:.2f} s; {how} limits its memory")


def _print(core: dict[str, str | None], extras: dict[str, dict[str, str | None]], needs: dict[str, str], box: _Box) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    total = len(list_envs())
    ready = sum(not spec.missing() for spec in list_envs())
    rows = [_Row(None not in core.values(), f"core: {_listed(core)}")]
    for extra, packages in extras.items():
        complete = None not in packages.values()
        rows.append(_Row(complete, f"{extra}: {_listed(packages)}", "" if complete else how_to_install(extra)))
    rows += [_Row(False, f"{escape(label)}:", remedy) for label, remedy in needs.items()]
    rows += [_Row(box.works, f"box: {escape(box.seen)}")]
    rows += [_Row(ready == total, f"{ready} of {total} environment ids can be made here")]
    console = Console(highlight=False)
    cores = os.cpu_count() or 1
    console.print(f"palestra {__version__}, Python {platform.python_version()}, {platform.system()}, {cores} cores")
    for row in rows:
        grid = Table.grid(padding=(0, 1, 0, 0))  # the mark has a column of its own, so that wrapped lines keep their indent
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row("  [green]✓[/green]" if row.good else "  [yellow]·[/yellow]", row.text)
        console.print(grid)
        if row.fix:
            console.print(f"      {row.fix}", style="bold", markup=False, soft_wrap=True)


def _listed(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '[red]missing[/red]'}" for name, version in packages.items())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> list[str]:
    # "all" is the sum of the others.
    return sorted(set(metadata.metadata("palestra").get_all("Provides-Extra") or []) - {"all"})


def _requirements(extra: str | None) -> list[str]:
    """Return the packages that the core (``None``) or one extra requires."""
    names = []
    for requirement in metadata.requires("palestra") or []:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        wanted = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        if (wanted.group(1) if wanted else None) == extra:
            names.append(name)
    return names
