"""``palestra check``: check that environments keep the contract."""

import typer

from palestra.checking import CheckReport, check_env, render
from palestra.cli.options import IDS, TASK_SEED, tasks_option
from palestra.cli.results import json_option
from palestra.errors import MissingData, MissingExtra
from palestra.registry import is_pattern, list_envs, typed

__all__ = ["check_command"]


def check_command(
    targets: list[str] = IDS,
    tasks: int = tasks_option(200, "Number of tasks to play."),
    seed: int = TASK_SEED,
    skip: list[str] = typer.Option([], help="Name of a check to skip. May be repeated."),
    seconds: float = typer.Option(
        60.0, min=1.0, help="Approximate time limit, in seconds: a slow environment is checked with fewer tasks."
    ),
    as_json: bool = json_option("Print one JSON report per line."),
) -> None:
    """Check that environments are deterministic, not exploitable, robust to hostile actions, and free of leaks.

    An id that matches a pattern is left out, with a sentence, if a package or data that it needs is missing.

    The exit code is 1 if a check failed.
    """
    typed(targets)
    checked = failed = 0
    missing: MissingExtra | MissingData | None = None
    for target in _expanded(targets):
        typer.echo(f"checking {target}: at most {tasks} tasks, about {seconds:g} s", err=True)
        try:
            report = check_env(target, n=tasks, seed=seed, skip=skip, seconds=seconds)
        except (MissingExtra, MissingData) as error:
            if target in targets:  # the user asked for this very one
                raise
            missing = error
            typer.echo(f"left out: {error}", err=True)
            continue
        checked += 1
        failed += 0 if report.ok else 1
        _show(report, as_json)
    if missing and not checked:
        raise missing
    if failed:
        raise typer.Exit(1)


def _expanded(targets: list[str]) -> list[str]:
    ids: list[str] = []
    for target in targets:
        matches = [spec.id for spec in list_envs(target)] if is_pattern(target) else []
        ids += matches or [target]
    return ids


def _show(report: CheckReport, as_json: bool) -> None:
    if as_json:
        typer.echo(report.to_json().decode())
    else:
        from rich.console import Console

        Console().print(render(report))
