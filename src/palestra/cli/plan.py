"""``palestra plan``: how many machines a run needs, what it will be waiting for, and what that costs."""

from itertools import product

import typer

from palestra.cluster.plan import Constants, Plan, Prices, Workload, plan

__all__ = ["plan_command"]


def plan_command(
    gpus: list[int] = typer.Option([1, 8, 64, 512], "--gpus", help="GPUs; may be given several times."),
    episodes: list[int] = typer.Option([100, 1000, 10_000, 100_000], "--episodes", help="Episodes at once; several times."),
    turns: int = typer.Option(10, min=1, help="Turns of an episode."),
    tokens: int = typer.Option(200, min=1, help="Tokens sampled in a turn."),
    env_cpu: float | None = typer.Option(None, min=0.0, help="Milliseconds of CPU the environment takes for a turn."),
    prices: tuple[float, float] = typer.Option((2.5, 0.04), help="Dollars an hour, of a GPU and of a core."),
) -> None:
    """Predict the rate, the bottleneck, the machines and the cost of training an 8B model, from constants measured once."""
    constants = Constants.read()
    load = Workload(turns, tokens, None if env_cpu is None else env_cpu / 1000)
    typer.echo(f"constants of {constants.date} ({constants.machine}); {turns} turns of {tokens} tokens")
    typer.echo("  GPUs  episodes  sampling  workers  episodes/s  machines     $/h  $/1000 episodes  waits for")
    for many, at_once in product(gpus, episodes):
        typer.echo(_line(plan(many, at_once, load, constants=constants, prices=Prices(*prices))))


def _line(found: Plan) -> str:
    return (
        f"{found.gpus:6d}{found.episodes:10d}{found.sampling:10d}{found.workers:9d}{found.rate:12.1f}{found.machines:10d}"
        f"{found.dollars:8.0f}{found.dollars_per_thousand:17.2f}  {found.bottleneck}"
    )
