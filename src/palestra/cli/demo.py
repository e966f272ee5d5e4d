"""``palestra demo``: a first look in one minute, without an API key, a GPU or Docker.

Two players that need no model, random and oracle, play four games. A table shows their scores, and a page shows every episode.
"""

import asyncio
import statistics
from pathlib import Path

import typer

from palestra.durable import replacing
from palestra.rollout import rollout
from palestra.statistics import Score, mean_interval
from palestra.trajectory import Trajectory
from palestra.viewer import export_page

__all__ = ["demo_command"]

GAMES = ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy", "game:Sudoku-v0-easy")
PLAYERS = ("random", "oracle")


def demo_command(
    tasks: int = typer.Option(50, "-n", min=2, help="Tasks per game."),
    seed: int = typer.Option(0, help="Seed of the tasks."),
    out: Path = typer.Option(Path("demo.html"), "-o", "--out", help="Where to write the replay."),
) -> None:
    """Play four games with two players that need no model, and write a replay of every episode."""
    with replacing(out) as draft:
        trajectories = asyncio.run(_play(tasks, seed))
        _print_table(trajectories)
        draft.write_text(export_page(trajectories, "palestra demo"), encoding="utf-8")
    typer.echo(f"  wrote {out}  (open it in a browser: every episode, turn by turn)")


async def _play(tasks: int, seed: int) -> list[Trajectory]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    collected: list[Trajectory] = []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        title = f"playing {len(GAMES)} games × {tasks} tasks × {len(PLAYERS)} players"
        done = bar.add_task(title, total=len(GAMES) * tasks * len(PLAYERS))
        for player in PLAYERS:
            async for trajectory in rollout(GAMES, player, n=tasks, seed=seed):
                collected.append(trajectory)
                bar.advance(done)
    return collected


def _print_table(trajectories: list[Trajectory]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="bold")
    table.add_column("game", style="cyan", no_wrap=True)
    for player in PLAYERS:
        table.add_column(player, no_wrap=True)
    table.add_column("turns", justify="right")
    for game in GAMES:
        played = [trajectory for trajectory in trajectories if trajectory.task.env == game]
        cells = [_score([one for one in played if one.policy == player]) for player in PLAYERS]
        turns = [f"{_mean_turns([one for one in played if one.policy == player]):.1f}" for player in PLAYERS]
        table.add_row(game.removeprefix("game:"), *cells, " / ".join(turns))
    console = Console()
    console.print(table)
    console.print("  mean reward over the tasks with its 95 % interval; mean turns of random / oracle\n", style="dim")


def _mean_turns(trajectories: list[Trajectory]) -> float:
    return statistics.fmean(len(one.turns) for one in trajectories)


def _score(trajectories: list[Trajectory]) -> str:
    scores = [Score((), one.task, one.reward) for one in trajectories if one.reward is not None]
    failed = len(trajectories) - len(scores)
    estimate = mean_interval(scores, bounds=(-0.1, 1.0))
    unscored = f" ({failed} failed)" if failed else ""
    return f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]{unscored}"
