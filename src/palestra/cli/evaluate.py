"""``palestra eval``: a score with an honest interval, and everything it rests on in a folder."""

import asyncio
import os
import sys
from pathlib import Path
from time import monotonic

import typer

from palestra.core import Policy, Sampling
from palestra.errors import UsageError
from palestra.evaluation import EvaluationOptions, Progress, Report, evaluate_async, parse_budget, report_markdown
from palestra.policies import as_policy
from palestra.policies.chat import ChatPolicy, Endpoint
from palestra.references import resolve

__all__ = ["eval_command"]

REFRESH_SECONDS = 0.5


def eval_command(  # noqa: PLR0913 - one parameter an option
    policy: str = typer.Argument(
        ..., help="A model (with --base-url), random, oracle, or module:name of a policy or function."
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
) -> None:
    """Evaluate a policy. Killed half-way? The same command goes on where it was."""
    limit = None if budget is None else parse_budget(budget)
    if limit is not None and limit.dollars is not None and base_url is not None and not any(prices):
        raise UsageError("a budget in money needs --prices: dollars a million tokens, sent and written")
    folder = out or Path("runs") / policy.replace(":", "-").replace("/", "-")
    options: EvaluationOptions = {
        "n": tasks,
        "repeats": repeats,
        "out": folder,
        "budget": limit,
        "seed": seed,
        "concurrency": concurrency,
        "deadline": deadline,
        "max_turns": max_turns,
    }
    if base_url is None:
        player = _policy(policy)
    else:
        endpoint = Endpoint(policy, base_url, prompt_price=prices[0], completion_price=prices[1])
        player = ChatPolicy(endpoint, Sampling(max_tokens=max_tokens, temperature=temperature))
        options["about"] = {"address": base_url, "temperature": f"{temperature:g}", "longest answer": str(max_tokens)}
    chosen = [*envs, *(more_envs or [])]  # what follows the first value of --envs
    with _Display() as display:
        report = asyncio.run(_evaluate(chosen, player, {**options, "watch": display.show}))
    _print(report)
    typer.echo(f"wrote {folder}  (palestra view {folder})")


async def _evaluate(envs: list[str], policy: Policy, options: EvaluationOptions) -> Report:
    try:
        return await evaluate_async(envs, policy, **options)
    finally:
        if isinstance(policy, ChatPolicy):
            await policy.close()


def _policy(name: str) -> Policy:
    if ":" not in name:
        if name not in ("random", "oracle"):
            raise UsageError(f'"{name}" is neither random nor oracle; for a model behind an API give its --base-url')
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
