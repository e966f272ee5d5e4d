"""``palestra eval``: a score with an honest interval, and everything it rests on in a folder."""

import asyncio
import re
from pathlib import Path
from time import monotonic

import typer

from palestra.cli.cluster import CLUSTER, CLUSTER_CONFIG, WORKERS, crew_of
from palestra.cli.players import PlayerOptions, playing
from palestra.cluster import Crew
from palestra.errors import UsageError
from palestra.evaluation import EvaluationOptions, Progress, Report, evaluate_async, parse_budget, report_markdown

__all__ = ["eval_command"]

REFRESH_SECONDS = 0.5


def eval_command(  # noqa: PLR0913 - one parameter an option
    policy: str = typer.Argument(
        ...,
        help="A model (with --base-url), hf:FOLDER, vllm:URL, sglang:URL, random, oracle, or module:name of one of yours.",
    ),
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
    base_url: str | None = typer.Option(None, help="An OpenAI-compatible API, up to /chat/completions; key in OPENAI_API_KEY."),
    prices: tuple[float, float] = typer.Option((0.0, 0.0), help="Dollars a million tokens, sent and written."),
    max_tokens: int = typer.Option(4096, min=1, help="Longest answer of the model."),
    temperature: float = typer.Option(1.0, min=0.0, help="Of the model."),
    shots: int = typer.Option(0, min=0, help="Examples by the oracle that a sampled model is shown."),
    tokenizer: str | None = typer.Option(None, help="Of a server's model; by default what the server calls the model."),
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
) -> None:
    """Evaluate a policy. Killed half-way? The same command goes on where it was."""
    limit = None if budget is None else parse_budget(budget)
    if limit is not None and limit.dollars is not None and base_url is not None and not any(prices):
        raise UsageError("a budget in money needs --prices: dollars a million tokens, sent and written")
    player = PlayerOptions(
        base_url=base_url,
        prices=prices,
        max_tokens=max_tokens,
        temperature=temperature,
        shots=shots,
        tokenizer=tokenizer,
    )
    folder = out or Path("runs") / re.sub(r"[^\w.-]+", "-", policy).strip("-")
    options: EvaluationOptions = {
        "n": tasks,
        "repeats": repeats,
        "out": folder,
        "budget": limit,
        "seed": seed,
        "concurrency": concurrency,
        "deadline": deadline,
        "max_turns": max_turns,
        "about": player.about(policy),
    }
    chosen = [*envs, *(more_envs or [])]  # what follows the first value of --envs
    crew = None if cluster is None and cluster_config is None else crew_of(cluster, workers, cluster_config)
    with _Display() as display:
        report = asyncio.run(_evaluate(chosen, policy, player, {**options, "watch": display.show}, crew))
    _print(report)
    typer.echo(f"wrote {folder}  (palestra view {folder})")


async def _evaluate(envs: list[str], name: str, player: PlayerOptions, options: EvaluationOptions, crew: Crew | None) -> Report:
    async with playing(name, player) as policy:
        if crew is None:
            return await evaluate_async(envs, policy, **options)
        async with crew:
            options["rollout"] = crew.rollout
            return await evaluate_async(envs, policy, **options)


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
