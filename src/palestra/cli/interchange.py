"""``palestra export`` and ``palestra import``: trajectories in the formats of other projects."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import typer

from palestra import __version__
from palestra.cli.options import out_option
from palestra.cli.results import JSON, show
from palestra.durable import Inside, lock_folder, replacing
from palestra.errors import SchemaError, UsageError
from palestra.evaluation import read_report
from palestra.interchange import (
    LogHeader,
    inspect_name,
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
from palestra.interchange.selection import best_of_group, preference_pairs, solved
from palestra.rollouts import TrajectoryWriter, read_trajectories
from palestra.trajectory import Trajectory

__all__ = ["Format", "Selection", "export_command", "import_command"]


class Format(StrEnum):
    """Formats of trajectories. ``preferences`` can only be written."""

    OPENAI = "openai"
    PARQUET = "parquet"
    INSPECT = "inspect"
    ATIF = "atif"
    PREFERENCES = "preferences"


class Selection(StrEnum):
    """The episodes to write."""

    ALL = "all"
    SOLVED = "solved"
    BEST = "best"


_SUFFIXES = {
    Format.OPENAI: ".openai.jsonl",
    Format.PARQUET: ".parquet",
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
        ...,
        "--to",
        help="Format. Parquet keeps everything; the others keep the conversations and what their format has room for.",
    ),
    out: Path | None = out_option("File to write (for atif a folder); beside RUN by default."),
    select: Selection = typer.Option(
        Selection.ALL, "--select", help="Which episodes: all, solved ones, or the best one per task."
    ),
    margin: float = typer.Option(
        0.0, min=0.0, help="For preferences: write only pairs whose rewards differ by more than this."
    ),
    as_json: bool = JSON,
) -> None:
    """Write the episodes of a run in another format."""
    file = Inside(run) / "trajectories.jsonl" if run.is_dir() else run
    if not file.is_file():
        raise UsageError(f"{run} is not a run: there is no {file}. Give a run folder or a file of trajectories")
    target = out or _place_beside(run, file, to)
    trajectories = _selected(read_trajectories(file), select)
    if to is Format.PREFERENCES:
        with replacing(target) as draft:
            pairs = write_preferences(preference_pairs(trajectories, margin=margin), draft)
        show(as_json, {"file": str(target), "pairs": pairs}, f"wrote {target}: {pairs} pairs")
        return
    if to is Format.ATIF:
        with lock_folder(target):
            written = write_atif(trajectories, target, agent_version=__version__)
    else:
        with replacing(target) as draft:
            written = _written(trajectories, draft, to, _header(run, file))
    left = sum(1 for _ in _selected(read_trajectories(file), select)) - written
    note = f"; {left} left out, because the format has no place for them" if left else ""
    data = {"file": str(target), "episodes": written, "left_out": left}
    show(as_json, data, f"wrote {target}: {written} episodes{note}")


def _written(trajectories: Iterator[Trajectory], draft: Path, to: Format, header: LogHeader) -> int:
    """Write one file and return the number of episodes in it."""
    if to is Format.OPENAI:
        return write_openai(trajectories, draft)
    if to is Format.PARQUET:
        return write_parquet(trajectories, draft)
    return write_inspect(trajectories, draft, header)


def _place_beside(run: Path, file: Path | Inside, to: Format) -> Path:
    """Return the default target."""
    return run.parent / (inspect_name(_header(run, file)) if to is Format.INSPECT else f"{run.resolve().name}{_SUFFIXES[to]}")


def _selected(trajectories: Iterator[Trajectory], select: Selection) -> Iterator[Trajectory]:
    if select is Selection.SOLVED:
        return solved(trajectories)
    return iter(best_of_group(trajectories)) if select is Selection.BEST else trajectories


def _header(run: Path, file: Path | Inside) -> LogHeader:
    metrics: dict[str, float] = {}
    if (Inside(run) / "report.json").exists() and (score := read_report(run).suite.score) is not None:
        metrics = {"mean": score.mean, "interval_low": score.low, "interval_high": score.high}
    when = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return LogHeader(task=run.resolve().name, created=when, packages={"palestra": __version__}, metrics=metrics)


def import_command(
    source: Path = typer.Argument(..., help="File to read (for atif also a folder)."),
    form: Format = typer.Option(..., "--from", help="Format of SOURCE."),
    out: Path = out_option("Run folder to create.", ...),
    as_json: bool = JSON,
) -> None:
    """Make a run folder from episodes in another format."""
    if not source.exists():
        raise UsageError(f"there is no file {source}")
    if form not in _READERS:
        raise UsageError(
            f"{form} cannot be imported: its pairs do not contain whole episodes. Choose another format with --from"
        )
    file = Inside(out) / "trajectories.jsonl"
    with lock_folder(out):
        if file.exists():
            raise UsageError(f"{out} holds a run already: choose another folder (--out)")
        # The file appears when it is complete: a source that fails half-way leaves no folder that looks like a run.
        with replacing(file) as draft:
            count = _copy(_READERS[form](source), draft)
            if not count:
                raise SchemaError(f"there is no episode in {source}")
    show(as_json, {"folder": str(out), "episodes": count}, f"wrote {out}: {count} episodes  (palestra view {out})")


def _copy(trajectories: Iterable[Trajectory], file: Path) -> int:
    count = 0
    with TrajectoryWriter(file) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)
            count += 1
    return count
