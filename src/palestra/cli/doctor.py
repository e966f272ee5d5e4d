"""``palestra doctor``: what is installed, what each extra lacks, and the fix."""

import os
import platform
import re
from importlib import metadata

import typer

from palestra import __version__
from palestra.encoding import encode_json
from palestra.registry import list_envs

__all__ = ["doctor_command"]


def doctor_command(as_json: bool = typer.Option(False, "--json", help="The same as JSON.")) -> None:
    """Say what is installed, what is missing, and how to get it."""
    core = {name: _version(name) for name in _requirements(extra=None)}
    extras = {extra: {name: _version(name) for name in _requirements(extra)} for extra in _extras()}
    needs = {need.label: need for spec in list_envs() for need in spec.missing()}
    if as_json:
        remedies = {label: need.remedy for label, need in needs.items()}
        typer.echo(encode_json({"palestra": __version__, "core": core, "extras": extras, "needs": remedies}).decode())
    else:
        _print(core, extras, {label: need.remedy for label, need in needs.items()})
    if None in core.values():
        raise typer.Exit(1)


def _print(core: dict[str, str | None], extras: dict[str, dict[str, str | None]], needs: dict[str, str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    cores = os.cpu_count() or 1
    console.print(f"palestra {__version__}, Python {platform.python_version()}, {platform.system()}, {cores} cores")
    console.print(f"  {_mark(None not in core.values())} core: {_listed(core)}")
    for extra, packages in extras.items():
        missing = [name for name, version in packages.items() if version is None]
        fix = f'   pip install "palestra\\[{extra}]"' if missing else ""
        console.print(f"  {_mark(not missing)} {extra}: {_listed(packages)}[bold]{fix}[/bold]")
    for label, remedy in needs.items():
        escaped = remedy.replace("[", "\\[")
        console.print(f"  {_mark(False)} {label}: [bold]{escaped}[/bold]")
    total = len(list_envs())
    ready = sum(not spec.missing() for spec in list_envs())
    console.print(f"  {_mark(ready == total)} {ready} of {total} environment ids can be made here")


def _mark(good: bool) -> str:
    return "[green]✓[/green]" if good else "[yellow]·[/yellow]"


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
    """The packages that the core, or one extra, asks for."""
    names = []
    for requirement in metadata.requires("palestra") or []:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        wanted = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
        if (wanted.group(1) if wanted else None) == extra:
            names.append(name)
    return names
