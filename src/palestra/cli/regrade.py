"""``palestra regrade``: score a run again with the environments and graders of today, without its model."""

import asyncio
from collections import Counter
from pathlib import Path

import typer

from palestra.evaluation import read_report, report_markdown
from palestra.evaluation.regrade import Regrading, regrade_async

__all__ = ["regrade_command"]

SHOWN = 20


def regrade_command(
    run: Path = typer.Argument(..., help="The folder of an evaluation."),
    out: Path | None = typer.Option(None, "-o", "--out", help="Where to; a new folder inside RUN by default."),
    concurrency: int = typer.Option(64, "-c", "--concurrency", min=1, help="Episodes at once."),
    deadline: float = typer.Option(600.0, help="Seconds for one episode."),
) -> None:
    """Score a run again: its recorded actions on the same tasks. Says which episodes could not be, and why."""
    regrading = asyncio.run(regrade_async(run, out=out, concurrency=concurrency, deadline=deadline))
    typer.echo(report_markdown(read_report(regrading.folder)))
    _tell(regrading)
    typer.echo(f"wrote {regrading.folder}  (palestra compare {regrading.folder} {run})")
    if regrading.not_regraded:
        raise typer.Exit(1)


def _tell(regrading: Regrading) -> None:
    for entry in regrading.changed[:SHOWN]:
        typer.echo(f"{_name(entry.group, entry.member)}: {_score(entry.before)} → {_score(entry.after)}")
    _more(len(regrading.changed), "changed")
    reasons = Counter(entry.why for entry in regrading.not_regraded)
    for why, count in reasons.most_common(SHOWN):
        examples = [_name(entry.group, entry.member) for entry in regrading.not_regraded if entry.why == why]
        typer.echo(f"not regraded: {count}, because {why} ({', '.join(examples[:5])}{', …' if count > 5 else ''})")
    _more(len(reasons), "reasons")


def _more(count: int, what: str) -> None:
    if count > SHOWN:
        typer.echo(f"… {count - SHOWN} more {what}, all in regrade.json")


def _name(group: int, member: int) -> str:
    return f"task {group}, try {member + 1}"


def _score(value: float | None) -> str:
    return "no score" if value is None else f"{value:.3f}"
