"""``palestra study``: make the runs of a study, repeat one of them, write its tables and figures, and pack its results."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from palestra.cli.results import JSON, show
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.encoding import encode_json
from palestra.foundation.installation import how_to_install
from palestra.foundation.references import search_here

if TYPE_CHECKING:
    from palestra.studies import Cell, Study

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)
_FOLDER = typer.Argument(..., metavar="STUDY", help="Folder with a study.toml. New results go into its folder runs.")
_ONLY = typer.Option(None, "--only", metavar="PATTERN", help="Make only these runs, such as guess/ReBN-0 or '*/GRPO-*'.")


@app.command("run")
def run_command(
    study: Path = _FOLDER,
    only: str | None = _ONLY,
    jobs: int = typer.Option(1, min=1, help="Runs to make side by side, each on one core."),
    work: Path | None = typer.Option(None, "--work", help="Folder of the training runs; runs/NAME of the study by default."),
    as_json: bool = JSON,
) -> None:
    """Make the runs of a study that have no result yet. The same command resumes after a stop or a kill."""
    _require_torch()
    from palestra.studies.running import run_study

    definition, cells = _cells(study, only)
    helpers = [_start_helper(study, only, work, as_json) for _ in range(jobs - 1)]
    try:
        made = run_study(study, definition, cells, work or Path("runs") / study.name, _progress(as_json))
    finally:
        for helper in helpers:
            if sys.exc_info()[0] is not None:
                helper.terminate()
            helper.wait()
    failed = sum(helper.returncode != 0 for helper in helpers)
    show(as_json, {"study": str(study), "made": made}, f"{study}: made {made} runs in this process")
    if failed:
        raise UsageError(
            f"{failed} of {len(helpers)} other processes stopped with an error: run the same command again to see it"
        )


@app.command("repeat")
def repeat_command(
    study: Path = _FOLDER,
    only: str = typer.Argument(..., metavar="RUN", help="One run of the study that has a result, such as guess/ReBN-0."),
    as_json: bool = JSON,
) -> None:
    """Make a run again, in a temporary folder, and compare its numbers with the kept result, to the last bit."""
    _require_torch()
    from palestra.studies.results import numbers, read_results
    from palestra.studies.running import run_cell

    definition, cells = _cells(study, only)
    if len(cells) != 1:
        raise UsageError(f'"{only}" means {len(cells)} runs; name one: {", ".join(cell.name for cell in cells[:8])}')
    kept = next((result for result in read_results(study, definition) if result.cell == cells[0]), None)
    if kept is None:
        raise UsageError(f"{cells[0]} has no result yet: palestra study run {study} --only {only}")
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as loop:
        made = run_cell(study, definition, cells[0], Path(folder), _progress(as_json), loop)
    ours, theirs = numbers(made), numbers(kept)
    different = [name for name in ours if ours[name] != theirs.get(name)]
    if different:
        raise UsageError(f"{cells[0]}: the repeated run has other values of {', '.join(different)}")
    show(as_json, {"run": cells[0].name, "same": True}, f"{cells[0]}: the repeated run has the same numbers")


@app.command("page")
def page_command(
    page: Path = typer.Argument(..., help="Markdown page with <!-- study: FOLDER --> and <!-- end of study -->."),
    as_json: bool = JSON,
) -> None:
    """Write tables and figures of the studies that a page names. Runs nothing."""
    from palestra.studies.page import fill_page

    folders = [str(folder) for folder in fill_page(page)]
    show(as_json, {"page": str(page), "studies": folders}, "\n".join(f"{page}: {folder}" for folder in folders))


@app.command("show")
def show_command(study: Path = _FOLDER, as_json: bool = JSON) -> None:
    """Print the tables of a study."""
    from palestra.studies import load_study
    from palestra.studies.page import study_section
    from palestra.studies.results import numbers, read_results

    if not as_json:
        typer.echo(study_section(study, study))
        return
    results = read_results(study, load_study(study))
    typer.echo(encode_json({"study": str(study), "runs": {result.cell.name: numbers(result) for result in results}}).decode())


@app.command("pack")
def pack_command(study: Path = _FOLDER, as_json: bool = JSON) -> None:
    """Move the results of a study from its folder runs into one compressed file, runs.json.xz.

    The other commands read both forms. Repeat the command to add later runs. If the file has a result of the same name, the
    later one replaces it.
    """
    from palestra.studies import load_study
    from palestra.studies.packing import PACKED
    from palestra.studies.results import pack_results

    moved, total = pack_results(study, load_study(study))
    answer = {"study": str(study), "moved": moved, "results": total}
    show(as_json, answer, f"{study}: moved {moved} results into {PACKED}, which has {total}")


@app.command("unpack")
def unpack_command(study: Path = _FOLDER, as_json: bool = JSON) -> None:
    """Move the results of a study from runs.json.xz back into files, such as to remove a run and make it again."""
    from palestra.studies import load_study
    from palestra.studies.results import RUNS, unpack_results

    load_study(study)  # raises if the folder is not a study
    results = unpack_results(study)
    show(as_json, {"study": str(study), "results": results}, f"{study}: moved {results} results into {RUNS}")


def _cells(folder: Path, only: str | None) -> tuple["Study", list["Cell"]]:
    from palestra.studies import load_study

    search_here()  # an arm may name code of the user's own
    definition = load_study(folder)
    cells = [cell for cell in definition.cells() if only is None or fnmatchcase(cell.name, only)]
    if not cells:
        raise UsageError(
            f'no run of {folder} is named "{only}"; there is {", ".join(cell.name for cell in definition.cells())}'
        )
    return definition, cells


def _progress(as_json: bool) -> Callable[[str], None]:
    """Return what prints a line of progress: beside the result, if a program reads it."""
    return lambda line: typer.echo(line, err=as_json)


def _start_helper(study: Path, only: str | None, work: Path | None, as_json: bool) -> subprocess.Popen[bytes]:
    """Start another process on the same study; it takes the runs that no process has taken, and ends with this process."""
    from palestra.inference.servers.launching import tied

    options = [*(["--only", only] if only else []), *(["--work", str(work)] if work else [])]
    command = [sys.executable, "-m", "palestra.cli", "study", "run", str(study), *options]
    return subprocess.Popen(tied(command, str(os.getpid())), stdout=sys.stderr if as_json else None)


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtra(f"studies train, which needs torch and transformers: {how_to_install('train')}") from None
    transformers.utils.logging.disable_progress_bar()
