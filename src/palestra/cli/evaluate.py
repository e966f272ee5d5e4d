"""``palestra eval``: a score with its confidence interval, and all its data in a folder.

With ``--scaling``, the same tasks are played under several turn limits and several times each: test-time compute.
"""

import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from palestra.adapters.loop_thread import run_anywhere
from palestra.cli.cluster import rollout_of
from palestra.cli.endings import Interrupted
from palestra.cli.options import (
    CLUSTER,
    CLUSTER_CONFIG,
    ENVS_OR_PANEL,
    EPISODES_AT_ONCE,
    GROUP_SIZE,
    HISTORY,
    LONGEST_REPLY,
    MODEL_URL,
    MORE_ENVS,
    POLICY,
    SECONDS,
    SEED,
    SHOTS,
    STRATEGY,
    TASKS_OR_PANEL,
    TEMPERATURE,
    TOKENIZER,
    TOOLS,
    TURN_LIMITS,
    WORKERS,
    WRAPPERS,
    default_folder,
    named_envs,
    out_option,
)
from palestra.cli.players import PlayerOptions, playing
from palestra.cli.results import json_option, show
from palestra.cli.targets import check_folder
from palestra.errors import UsageError
from palestra.evaluation import Budget, EpisodeScore, Progress, Report, evaluate_async, parse_budget, report_markdown
from palestra.evaluation.budget import budget_text
from palestra.evaluation.wording import dollars
from palestra.foundation.confidential import mask
from palestra.foundation.terminal import terminal_safe
from palestra.rollouts import Envs
from palestra.suite.panels import load_panel

if TYPE_CHECKING:
    from palestra.evaluation.scaling import Scaling

__all__ = ["eval_command"]

REFRESH_SECONDS = 0.5


def eval_command(
    policy: str = POLICY,
    more_envs: list[str] = MORE_ENVS,
    envs: list[str] = ENVS_OR_PANEL,
    panel: str | None = typer.Option(
        None, metavar="NAME", help="Named panel of frozen tasks, instead of --envs; `palestra list panels` shows them."
    ),
    n: int | None = TASKS_OR_PANEL,
    group_size: int = GROUP_SIZE,
    concurrency: int = EPISODES_AT_ONCE,
    seed: int = SEED,
    max_turns: list[int] | None = TURN_LIMITS,
    scaling: bool = typer.Option(
        False,
        "--scaling",
        help="Measure test-time compute: the score against the turns allowed (every --max-turns) and against the samples per "
        "task (-g): pass@k, majority and best of k. Writes scaling.svg, scaling.md and scaling.json.",
    ),
    judge: str | None = typer.Option(
        None,
        metavar="NAME",
        help="With --scaling: what prefers one episode to another: likelihood (the default), or your own module:name.",
    ),
    deadline: float = SECONDS,
    tool: list[str] = TOOLS,
    wrapper: list[str] = WRAPPERS,
    budget: str | None = typer.Option(None, help="Stop at this cost, for example 5usd or 200ktokens."),
    out: Path | None = out_option("Run folder; runs/POLICY,ENVS by default, with --scaling runs/scaling,POLICY,ENVS."),
    base_url: str | None = MODEL_URL,
    prices: tuple[float, float] = typer.Option(
        (0.0, 0.0), metavar="INPUT OUTPUT", help="USD per million input tokens and per million output tokens."
    ),
    max_tokens: int = LONGEST_REPLY,
    temperature: float = TEMPERATURE,
    shots: int = SHOTS,
    tokenizer: str | None = TOKENIZER,
    history: str | None = HISTORY,
    strategy: str | None = STRATEGY,
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
    as_json: bool = json_option("Print the folder and the report as one JSON object."),
) -> None:
    """Evaluate a policy. The same command resumes an interrupted run and plays failed episodes again.

    The exit code is 0 if the evaluation was played to its end and at least one episode has a score. It is 1 if no episode has
    one, or if a budget or failures stopped the evaluation, and 130 after Ctrl-C.
    """
    own_parts = [part for part in (history, strategy) if part]
    names = named_envs(envs, more_envs, [*tool, *wrapper, *own_parts, *([judge] if judge else [])])
    chosen = _played(names, panel)
    limits = _turn_limits(max_turns, budget, judge, scaling=scaling)
    limit = _budget(budget, base_url, prices)
    player = PlayerOptions(
        base_url=base_url,
        prices=prices,
        max_tokens=max_tokens,
        temperature=temperature,
        shots=shots,
        history=history,
        tokenizer=tokenizer,
        strategy=strategy,
    )
    prefix = ["scaling"] if scaling else []
    folder = check_folder(out or default_folder(*prefix, policy, *own_parts, *([panel] if panel else names)))

    @asynccontextmanager
    async def settings() -> AsyncIterator[dict[str, Any]]:
        """What an evaluation and a measurement of test-time compute have in common, as long as the policy is connected."""
        async with playing(policy, player) as connected, rollout_of(cluster, workers, cluster_config) as rollout:
            yield {
                "policy": connected,
                "n": n,
                "out": folder,
                "about": player.about(policy),
                "concurrency": concurrency,
                "seed": seed,
                "deadline": deadline,
                "wrappers": wrapper,
                "tools": tool,
                "rollout": rollout,
            }

    async def evaluated(watch: Callable[[Progress], None]) -> Report:
        async with settings() as common:
            return await evaluate_async(
                chosen,
                group_size=group_size,
                budget=limit,
                watch=watch,
                max_turns=limits[0],
                command=partial(_typed_again, sys.argv[1:]),
                **common,
            )

    async def measured() -> "Scaling":
        from palestra.evaluation.scaling import scaling_async

        async with settings() as common:
            return await scaling_async(chosen, turns=limits, samples=group_size, judge=judge or "likelihood", **common)

    try:
        if scaling:
            _print_scaling(run_anywhere(measured()), folder, as_json)
            return
        with _Display() as display:
            report = run_anywhere(evaluated(display.show))
    except KeyboardInterrupt:
        raise Interrupted(f"Finished episodes are in {folder}: run the same command again to resume.") from None
    _end(report, folder, as_json)


def _played(names: list[str], panel: str | None) -> Envs:
    if names and panel:
        raise UsageError("--envs and --panel both say what to play: leave out one of them")
    if not names and not panel:
        raise UsageError('missing option: what to play. Type --envs "game:*-easy", or --panel NAME (palestra list panels)')
    return load_panel(panel) if panel else names


def _turn_limits(max_turns: list[int] | None, budget: str | None, judge: str | None, *, scaling: bool) -> list[int | None]:
    """Return the turn limits to play under; ``None`` is the environments' own."""
    if scaling and budget is not None:
        raise UsageError("a budget does not work with --scaling, which makes one evaluation per turn limit: leave out --budget")
    if not scaling and judge is not None:
        raise UsageError("--judge chooses among the samples of a task: add --scaling and -g 8, or leave it out")
    if not scaling and len(max_turns or []) > 1:
        raise UsageError("--max-turns is one limit: to measure the score under several, add --scaling")
    return [*max_turns] if max_turns else [None]


def _budget(budget: str | None, base_url: str | None, prices: tuple[float, float]) -> Budget | None:
    limit = None if budget is None else parse_budget(budget)
    if limit is not None and limit.dollars is not None and base_url is not None and not any(prices):
        raise UsageError("a budget in money needs --prices: USD per million input and per million output tokens")
    return limit


def _typed_again(arguments: Sequence[str], budget: Budget | None) -> str:
    """The command line that was typed, with ``budget``."""
    words = list(arguments)
    if budget is not None:
        for position, word in enumerate(words):
            if word == "--budget" and position + 1 < len(words):
                words[position + 1] = budget_text(budget)
            elif word.startswith("--budget="):
                words[position] = f"--budget={budget_text(budget)}"
    return mask(shlex.join(["palestra", *words]))


def _end(report: Report, folder: Path, as_json: bool) -> None:
    """Print the report; exit with 1 if no episode has a score, or if the evaluation stopped early."""
    if as_json:
        show(as_json, {"folder": str(folder), "report": report}, "")
    else:
        _print(report)
        typer.echo(f"wrote {folder}  (palestra view {folder})")
    if not report.suite.scored:
        typer.echo("no episode has a score: fix the cause above and run the same command again", err=True)
    if report.stopped or not report.suite.scored:
        raise typer.Exit(1)


def _print_scaling(scaling: "Scaling", folder: Path, as_json: bool) -> None:
    from palestra.evaluation.scaling import scaling_markdown

    text = f"{terminal_safe(scaling_markdown(scaling))}\nwrote {folder / 'scaling.svg'}"
    show(as_json, {"folder": str(folder), "scaling": scaling}, text)


class _Display:
    """A progress line: episodes, score and cost so far, failures, time left. Above it, the cause of the first failure."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._bar = Bar(*columns, console=Console(stderr=True))
        self._task = self._bar.add_task("", total=None)
        self._next = 0.0
        self._read = 0
        self._failed = False
        self._latest: Progress | None = None

    def __enter__(self) -> "_Display":
        return self

    def __exit__(self, *_: object) -> None:
        if self._latest is not None:
            self._draw(self._latest)  # an evaluation that stopped early may have ended between two pictures
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        self._latest = progress
        if monotonic() >= self._next or len(progress.episodes) >= progress.total:
            self._draw(progress)

    def _draw(self, progress: Progress) -> None:
        ended = len(progress.episodes)
        self._bar.start()  # only now: a usage error is printed without a progress bar above it
        self._bar.update(self._task, total=progress.total, completed=ended, description=_line(progress.report()))
        self._name_first_failure(progress.episodes[self._read :])
        self._read = ended
        # A report on many episodes takes long: the display uses at most a tenth of the time.
        self._next = monotonic() + REFRESH_SECONDS + ended / 50_000

    def _name_first_failure(self, ended: Sequence[EpisodeScore]) -> None:
        """Print once why an episode failed, so that a wrong setting (too short a deadline) is noticed before the end."""
        failed = next((episode for episode in ended if episode.cause), None)
        if failed is None or self._failed:
            return
        self._failed = True
        told = f"an episode of {failed.env} failed: {failed.cause}"
        self._bar.console.print(terminal_safe(told), markup=False, highlight=False, soft_wrap=True)


def _line(report: Report) -> str:
    suite = report.suite
    mean = suite.score or (suite.partial.score if suite.partial else None)
    parts = [] if mean is None else [f"{mean.mean:.2f} so far"]
    if suite.dollars is not None:
        parts.append(dollars(suite.dollars.total))
    if suite.scored < suite.issued:
        parts.append(f"{suite.issued - suite.scored} without a score")
    return " · ".join(parts)


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(terminal_safe(report_markdown(report))))
    else:
        typer.echo(terminal_safe(report_markdown(report)))
