"""``palestra check``: does an environment keep the contract?"""

import os
import sys

import typer

from palestra.checking import CheckReport, check_env, render
from palestra.registry import list_envs

__all__ = ["check_command"]


def check_command(
    targets: list[str] = typer.Argument(..., metavar="ID...", help='Ids, patterns ("game:*") or module:Class references.'),
    tasks: int = typer.Option(200, "-n", "--tasks", min=1, help="How many tasks to play."),
    seed: int = typer.Option(0, help="From which the tasks are drawn."),
    skip: list[str] = typer.Option([], help="A check to leave out; may be given again."),
    seconds: float = typer.Option(60.0, min=1.0, help="Play fewer tasks than asked rather than take much longer."),
    as_json: bool = typer.Option(False, "--json", help="One JSON report per line."),
) -> None:
    """Check environments: determinism, scores, hostile actions, leaks. Exits with 1 if one fails."""
    # A class in a file of this folder is found as it would be by `python -c "import …"`.
    sys.path.insert(0, os.getcwd())
    failed = 0
    for target in _expanded(targets):
        report = check_env(target, tasks=tasks, seed=seed, skip=skip, seconds=seconds)
        failed += not report.ok
        _show(report, as_json)
    if failed:
        raise typer.Exit(1)


def _expanded(targets: list[str]) -> list[str]:
    found: list[str] = []
    for target in targets:
        matches = [spec.id for spec in list_envs(target)] if any(mark in target for mark in "*?[") else []
        found += matches or [target]
    return found


def _show(report: CheckReport, as_json: bool) -> None:
    if as_json:
        typer.echo(report.to_json().decode())
    else:
        from rich.console import Console

        Console().print(render(report))
