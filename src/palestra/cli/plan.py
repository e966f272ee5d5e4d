"""``palestra plan``: simulate how many machines a run needs, what limits it, and what it costs."""

from itertools import product

import typer

from palestra.cli.results import JSON, show
from palestra.cluster.plan import Plan, Prices, Workload, plan
from palestra.cluster.simulation import Constants
from palestra.cluster.worlds import read_worlds
from palestra.errors import UsageError

__all__ = ["plan_command"]


def plan_command(
    gpus: list[int] = typer.Option([1, 8, 64, 512], "--gpus", help="Number of GPUs. May be repeated."),
    episodes: list[int] = typer.Option(
        [100, 1000, 10_000, 100_000], "--episodes", help="Number of episodes that run at the same time. May be repeated."
    ),
    turns: int = typer.Option(10, min=1, help="Turns per episode."),
    tokens: int = typer.Option(200, min=1, help="Sampled tokens per turn."),
    env_cpu: float | None = typer.Option(None, min=0.0, help="CPU time of the environment per turn, in milliseconds."),
    world: str = typer.Option(
        "", help="Measured CPU time and memory of a heavy world instead of --env-cpu: miniwob or site, both in a browser."
    ),
    prices: tuple[float, float] = typer.Option(
        (2.5, 0.04), metavar="GPU CORE", help="Price of a GPU and of a CPU core, in USD per hour."
    ),
    as_json: bool = JSON,
) -> None:
    """Simulate the throughput, bottleneck, machines and cost of training an 8B model on H100 GPUs.

    The results are simulated. The simulation uses measured CPU costs and published GPU speeds.
    """
    constants = Constants.read()
    load = _workload(turns, tokens, env_cpu, world)
    found = [
        plan(many, at_once, load, constants=constants, prices=Prices(*prices)) for many, at_once in product(gpus, episodes)
    ]
    head = [
        "Simulated, not measured: the speed of the GPUs is taken from publications, nothing here has run on a GPU.",
        f"CPU costs measured on {constants.date} ({constants.machine}); {turns} turns of {tokens} tokens per episode",
        "  GPUs  episodes  sampling  workers  episodes/s   cores  machines     $/h  $/1000 episodes  bottleneck",
    ]
    if world:
        head.insert(2, _described(world))
    show(as_json, {"simulated": True, "plans": found}, "\n".join([*head, *map(_line, found)]))


def _workload(turns: int, tokens: int, env_cpu: float | None, world: str) -> Workload:
    if not world:
        return Workload(turns, tokens, None if env_cpu is None else env_cpu / 1000)
    worlds = read_worlds()
    if world not in worlds or env_cpu is not None:
        raise UsageError(f"--world takes one of {', '.join(worlds)}, and no --env-cpu beside it")
    costs = worlds[world]
    return Workload(turns, tokens, costs.turn_cpu, costs.reset_cpu, costs.megabytes)


def _described(world: str) -> str:
    costs = read_worlds()[world]
    return (
        f"{world}: {costs.reset_cpu:.2f} CPU s per reset, {costs.turn_cpu:.2f} per turn and {costs.megabytes:.0f} MB per "
        f"episode, measured on {costs.date} ({costs.machine}, {costs.episodes} episodes, load average {costs.load:.1f})"
    )


def _line(found: Plan) -> str:
    return (
        f"{found.gpus:6d}{found.episodes:10d}{found.sampling:10d}{found.workers:9d}{found.rate:12.1f}{found.cores:8d}"
        f"{found.machines:10d}{found.dollars:8.0f}{found.dollars_per_thousand:17.2f}  {found.bottleneck}"
    )
