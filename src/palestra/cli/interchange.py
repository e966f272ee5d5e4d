"""``palestra export`` and ``palestra import``: trajectories in other people's formats, and back."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import typer

from palestra import __version__
from palestra.errors import UsageError
from palestra.evaluation import read_report
from palestra.interchange import (
    LogHeader,
    read_atif,
    read_inspect,
    read_openai,
    read_parquet,
    write_atif,
    write_inspect,
    write_openai,
    write_parquet,
    write_preferences,
)
from palestra.rollout import TrajectoryWriter, read_trajectories
from palestra.training.selection import best_of_group, preference_pairs, solved
from palestra.trajectory import Trajectory

__all__ = ["Format", "Selection", "export_command", "import_command"]


class Format(StrEnum):
    """What can be written and read."""

    OPENAI = "openai"
    PARQUET = "parquet"
    INSPECT = "inspect"
    ATIF = "atif"
    PREFERENCES = "preferences"


class Selection(StrEnum):
    """Which episodes are written."""

    ALL = "all"
    SOLVED = "solved"
    BEST = "best"


_SUFFIXES = {
    Format.OPENAI: ".openai.jsonl",
    Format.PARQUET: ".parquet",
    Format.INSPECT: ".inspect.json",
    Format.ATIF: ".atif",
    Format.PREFERENCES: ".preferences.jsonl",
}
_READERS: dict[Format, Callable[[Path], Iterator[Trajectory]]] = {
    Format.OPENAI: read_openai,
    Format.PARQUET: read_parquet,
    Format.INSPECT: read_inspect,
    Format.ATIF: read_atif,
}


def export_command(
    run: Path = typer.Argument(..., help="A run folder, or a file of trajectories."),
    to: Format = typer.Option(
        ..., "--to", help="Parquet keeps everything; the others the conversation and more or less beside."
    ),
    out: Path | None = typer.Option(None, "-o", "--out", help="The file (for atif the folder); beside RUN by default."),
    select: Selection = typer.Option(
        Selection.ALL, "--select", help="Solved episodes, or the best try at each task, for imitation."
    ),
    margin: float = typer.Option(0.0, min=0.0, help="preferences: by how much more than this the rewards of a pair differ."),
) -> None:
    """Write the episodes of a run in another format."""
    file = run / "trajectories.jsonl" if run.is_dir() else run
    if not file.is_file():
        raise UsageError(f"{run} is not a run: there is no {file}")
    target = out or run.with_name(run.name + _SUFFIXES[to])
    trajectories = _selected(read_trajectories(file), select)
    if to is Format.PREFERENCES:
        pairs = write_preferences(preference_pairs(trajectories, margin=margin), target)
        typer.echo(f"wrote {target}: {pairs} pairs")
        return
    if to is Format.OPENAI:
        written = write_openai(trajectories, target)
    elif to is Format.PARQUET:
        written = write_parquet(trajectories, target)
    elif to is Format.INSPECT:
        written = write_inspect(trajectories, target, _header(run, file))
    else:
        written = write_atif(trajectories, target, agent_version=__version__)
    left = sum(1 for _ in _selected(read_trajectories(file), select)) - written
    typer.echo(f"wrote {target}: {written} episodes" + (f"; {left} have no place in this format" if left else ""))


def _selected(trajectories: Iterator[Trajectory], select: Selection) -> Iterator[Trajectory]:
    if select is Selection.SOLVED:
        return solved(trajectories)
    return iter(best_of_group(trajectories)) if select is Selection.BEST else trajectories


def _header(run: Path, file: Path) -> LogHeader:
    metrics: dict[str, float] = {}
    if (run / "report.json").exists() and (score := read_report(run).suite.score) is not None:
        metrics = {"mean": score.mean, "interval_low": score.low, "interval_high": score.high}
    when = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return LogHeader(task=run.resolve().name, created=when, packages={"palestra": __version__}, metrics=metrics)


def import_command(
    source: Path = typer.Argument(..., help="What to read: a file, or for atif a folder too."),
    form: Format = typer.Option(..., "--from", help="What it is."),
    out: Path = typer.Option(..., "-o", "--out", help="The run folder to make."),
) -> None:
    """Make a run of episodes that came in another format, to look at and compare."""
    file = out / "trajectories.jsonl"
    if file.exists():
        raise UsageError(f"{out} holds a run already: name another folder")
    if not source.exists():
        raise UsageError(f"there is no {source}")
    if form not in _READERS:
        raise UsageError(f"{form} can be written and not read: a pair is less than two episodes")
    count = 0
    with TrajectoryWriter(file) as writer:
        for trajectory in _READERS[form](source):
            writer.write(trajectory)
            count += 1
    typer.echo(f"wrote {out}: {count} episodes  (palestra view {out})")
