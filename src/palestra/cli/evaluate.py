"""``palestra eval``: a score with an honest interval, and everything it rests on in a folder."""

import os
import sys
from pathlib import Path
from time import monotonic

import typer

from palestra.core import Policy
from palestra.errors import UsageError
from palestra.evaluation import Budget, Progress, Report, evaluate, report_markdown
from palestra.policies import as_policy
from palestra.references import resolve

__all__ = ["eval_command"]

REFRESH_SECONDS = 0.5


def eval_command(  # noqa: PLR0913 - one parameter an option
    policy: str = typer.Argument(..., help="random, oracle, or module:name of a policy or of a function of text."),
    more_envs: list[str] = typer.Argument(None, hidden=True),
    envs: list[str] = typer.Option(..., "--envs", "-e", help='Ids or patterns: --envs "game:*-easy" rg:letter_counting'),
    tasks: int = typer.Option(100, "-n", "--tasks", min=1, help="Tasks of each environment."),
    repeats: int = typer.Option(1, "-r", "--repeats", min=1, help="Tries at each task."),
    concurrency: int = typer.Option(64, "-c", "--concurrency", min=1, help="Episodes at once."),
    seed: int = typer.Option(0, help="From which tasks and every random choice are derived."),
    max_turns: int | None = typer.Option(None, min=1, help="Cut episodes after so many turns."),
    deadline: float = typer.Option(600.0, help="Seconds for one episode."),
    budget: str | None = typer.Option(None, help="Stop spending at 5usd, or at 200ktokens."),
    out: Path | None = typer.Option(None, "-o", "--out", help="The run folder; runs/POLICY by default."),
) -> None:
    """Evaluate a policy. Killed half-way? The same command goes on where it was."""
    folder = out or Path("runs") / policy.replace(":", "-").replace("/", "-")
    with _Display() as display:
        report = evaluate(
            [*envs, *(more_envs or [])],  # what follows the first value of --envs
            _policy(policy),
            n=tasks,
            repeats=repeats,
            out=folder,
            budget=None if budget is None else Budget.parse(budget),
            watch=display.show,
            seed=seed,
            concurrency=concurrency,
            deadline=deadline,
            max_turns=max_turns,
        )
    _print(report)
    typer.echo(f"wrote {folder}  (palestra view {folder})")


def _policy(name: str) -> Policy:
    if ":" not in name:
        return as_policy(name)
    # Something in a file of this folder is found as it would be by `python -c "import …"`.
    sys.path.insert(0, os.getcwd())
    found = resolve(name)
    if isinstance(found, type):
        found = found()
    if not callable(found) and not hasattr(found, "act"):
        raise UsageError(f"{name} is a {type(found).__name__}, neither a policy nor a function of text")
    return as_policy(found)


class _Display:
    """A line that lives: how far, the score so far, what failed, what it cost, how long still."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task("", total=None)
        self._next = 0.0

    def __enter__(self) -> "_Display":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        ended = len(progress.episodes)
        if monotonic() < self._next and ended < progress.total:
            return
        self._bar.update(self._task, total=progress.total, completed=ended, description=_line(progress.report()))
        # The report on many episodes takes its time: the display never takes more than a tenth of it.
        self._next = monotonic() + REFRESH_SECONDS + ended / 50_000


def _line(report: Report) -> str:
    suite = report.suite
    parts = []
    if suite.score is not None:
        parts.append(f"{suite.score.mean:.2f} \\[{suite.score.low:.2f}, {suite.score.high:.2f}]")
    if suite.dollars is not None:
        parts.append(f"${suite.dollars.total:.2f}")
    if suite.scored < suite.issued:
        parts.append(f"{suite.issued - suite.scored} without a score")
    return " · ".join(parts)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(report_markdown(report)))
    else:
        typer.echo(report_markdown(report))
