"""``palestra rollout``: episodes into a folder, from this process or a cluster, each exactly once."""

import asyncio
from pathlib import Path
from time import perf_counter

import typer

from palestra.cli.cluster import CLUSTER, CLUSTER_CONFIG, WORKERS, crew_of
from palestra.cli.players import named_policy
from palestra.cluster import Crew
from palestra.cluster.record import audit, recorded
from palestra.core import Policy
from palestra.rollout import RolloutOptions

__all__ = ["rollout_command"]


def rollout_command(  # noqa: PLR0913 - one parameter an option
    policy: str = typer.Argument(..., help="random, oracle, or module:name of a policy or function."),
    more_envs: list[str] = typer.Argument(None, hidden=True),
    envs: list[str] = typer.Option(..., "--envs", "-e", help="Ids of environments, played in turn."),
    tasks: int = typer.Option(100, "-n", "--tasks", min=1, help="Tasks in all."),
    group_size: int = typer.Option(1, min=1, help="Episodes of each task."),
    concurrency: int = typer.Option(512, "-c", "--concurrency", min=1, help="Episodes at once."),
    seed: int = typer.Option(0, help="From which tasks and every random choice are derived."),
    max_turns: int | None = typer.Option(None, min=1, help="Cut episodes after so many turns."),
    deadline: float = typer.Option(600.0, help="Seconds for one episode."),
    out: Path = typer.Option(Path("rollout"), "-o", "--out", help="The folder."),
    cluster: str | None = CLUSTER,
    workers: int | None = WORKERS,
    cluster_config: Path | None = CLUSTER_CONFIG,
) -> None:
    """Play episodes and keep their trajectories. Killed half-way? The same command goes on where it was."""
    options: RolloutOptions = {
        "n": tasks,
        "group_size": group_size,
        "concurrency": concurrency,
        "seed": seed,
        "max_turns": max_turns,
        "deadline": deadline,
    }
    chosen = [*envs, *(more_envs or [])]
    began = perf_counter()
    crew = crew_of(cluster, workers, cluster_config)
    episodes = asyncio.run(_play(crew, out, chosen, named_policy(policy), options))
    seconds = perf_counter() - began
    typer.echo(f"{episodes} episodes in {seconds:.1f} s, {crew.deaths} workers lost on the way")
    found = audit(out)
    books = found.ledger
    typer.echo(
        f"issued {books.issued} = consumed {books.consumed} + failed {books.failed} + dropped {books.dropped}: "
        f"{'each exactly once' if found.sound else 'NOT SOUND'}"
    )
    typer.echo(f"wrote {out}  (palestra view {out})")
    raise typer.Exit(0 if found.sound else 1)


async def _play(crew: Crew, folder: Path, envs: list[str], policy: Policy, options: RolloutOptions) -> int:
    async with crew:
        return sum([1 async for _ in recorded(crew, folder, envs, policy, **options)])
