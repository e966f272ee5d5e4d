"""``palestra plan``: simulate how many machines a run needs, what limits it, and what it costs."""

import re
from itertools import product
from pathlib import Path
from typing import NamedTuple

import typer

from palestra.cli.endings import ExitCode
from palestra.cli.options import OVERRIDES
from palestra.cli.results import JSON, show
from palestra.cluster.plan import PUBLISHED, ClusterPlan, EngineFigures, GpuMemory, Prices, Refused, Workload, plan
from palestra.cluster.simulation import Constants
from palestra.cluster.worlds import read_worlds
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.training.memory import RankMemory, in_bytes

__all__ = ["plan_command"]


class Figure(NamedTuple):
    """A figure that the plan computes with."""

    what: str
    value: str
    source: str
    """Where it comes from, and whether somebody has measured it."""


def plan_command(
    recipe: Path | None = typer.Argument(
        None, help="Recipe whose learner, turns and tokens are planned, as in palestra train; without it, see --model."
    ),
    overrides: list[str] = OVERRIDES,
    gpus: list[int] = typer.Option([1, 8, 64, 512], "--gpus", min=1, help="Number of GPUs. May be repeated."),
    episodes: list[int] = typer.Option(
        [100, 1000, 10_000, 100_000], "--episodes", min=1, help="Number of episodes that run at the same time. May be repeated."
    ),
    model: str | None = typer.Option(
        None, metavar="SIZE", help="Size of a model that is trained in full, such as 8B or 500M; 8B by default."
    ),
    gpu_memory: float = typer.Option(80.0, min=0.0, help="Memory of a GPU, in GB."),
    turns: int | None = typer.Option(None, min=1, help="Turns per episode: the recipe's most, or 10."),
    tokens: int | None = typer.Option(None, min=1, help="Sampled tokens per turn: the recipe's most, or 200."),
    env_cpu: float | None = typer.Option(None, min=0.0, help="CPU time of the environment per turn, in milliseconds."),
    world: str = typer.Option(
        "", help="Measured CPU time and memory of a heavy world instead of --env-cpu: miniwob or site, both in a browser."
    ),
    prices: tuple[float, float] = typer.Option(
        (2.5, 0.04), metavar="GPU CORE", help="Price of a GPU and of a CPU core, in USD per hour."
    ),
    as_json: bool = JSON,
) -> None:
    """Simulate the throughput, bottleneck, machines and cost of a training run on H100 GPUs.

    The results are simulated: measured CPU costs, published GPU speeds, and the memory that palestra train --dry-run prints. A
    run that does not fit into the memory of the GPUs is refused with the reason; if no row is left, the exit code is 1.
    """
    if recipe is not None and model is not None:
        raise UsageError("a recipe names its model: leave --model out, or type model.path=NAME after the recipe")
    constants = Constants.read()
    if recipe is None:
        memory, longest, most = _by_size(model or "8B", gpu_memory * 1e9), 10, 200
    else:
        memory, longest, most = _of_recipe(recipe, overrides or [], gpu_memory * 1e9)
    load = _workload(turns or longest, tokens or most, env_cpu, world)
    plans = [
        plan(many, at_once, load, constants=constants, prices=Prices(*prices), memory=memory)
        for many, at_once in product(gpus, episodes)
    ]
    figures = _figures(memory, load, constants, Prices(*prices), world)
    width = max(len(figure.what) for figure in figures), max(len(figure.value) for figure in figures)
    lines = [
        "Simulated, not measured: nothing here has run on a GPU.",
        f"{load.turns} turns of {load.tokens} tokens per episode. The plan computes with",
        *(f"  {figure.what:<{width[0]}}  {figure.value:>{width[1]}}  {figure.source}" for figure in figures),
        "  GPUs  episodes  sampling  learner/GPU  workers  episodes/s   cores  machines     $/h  $/1000 episodes  evidence   "
        "bottleneck",
        *map(_line, plans),
    ]
    data = {"simulated": True, "figures": [figure._asdict() for figure in figures], "plans": plans}
    show(as_json, data, "\n".join(lines))
    if all(isinstance(row, Refused) for row in plans):
        raise typer.Exit(ExitCode.FAILED)


def _by_size(size: str, gpu_memory: float) -> GpuMemory:
    stated = re.fullmatch(r"(\d+(?:\.\d+)?)([MB])", size, re.IGNORECASE)
    if stated is None or not float(stated[1]):
        raise UsageError(f'--model takes a size such as 8B or 500M, not "{size}"; for a model by name, plan a recipe')
    parameters = float(stated[1]) * {"m": 1e6, "b": 1e9}[stated[2].lower()]
    return GpuMemory(parameters, RankMemory.by_size(parameters), gpu_memory)


def _of_recipe(recipe: Path, overrides: list[str], gpu_memory: float) -> tuple[GpuMemory, int, int]:
    """Return what the recipe's dry run estimates, its most turns, and its most tokens per turn."""
    try:
        from palestra.recipes.reading import resolve
        from palestra.training.estimate import estimate
    except ImportError:
        raise MissingExtra(f"the plan of a recipe needs torch and transformers: {how_to_install('train')}") from None
    config = resolve(recipe, overrides)
    estimated = estimate(config)
    memory = GpuMemory(estimated.model.parameters, estimated.learner, gpu_memory)
    return memory, estimated.turns, config.play.max_tokens


def _workload(turns: int, tokens: int, env_cpu: float | None, world: str) -> Workload:
    if not world:
        return Workload(turns, tokens, None if env_cpu is None else env_cpu / 1000)
    worlds = read_worlds()
    if world not in worlds or env_cpu is not None:
        raise UsageError(f"--world takes one of {', '.join(worlds)}, and no --env-cpu beside it")
    costs = worlds[world]
    return Workload(turns, tokens, costs.turn_cpu, costs.reset_cpu, costs.megabytes)


def _figures(memory: GpuMemory, load: Workload, constants: Constants, prices: Prices, world: str) -> list[Figure]:
    engine, learner = EngineFigures.of(memory.parameters), memory.learner
    larger = memory.parameters > PUBLISHED
    scaled = (
        ", divided by the size: assumed"
        if larger
        else ""
        if memory.parameters == PUBLISHED
        else ": assumed for a smaller model"
    )
    passes = "activations planned" if learner.passes is not None else "without activations, which are not known"
    measured = f"measured on {constants.date} ({constants.machine})"
    turn = (load.env_cpu or 0.0) + constants.turn_cpu
    rows = [
        Figure("model", f"{memory.parameters / 1e9:.2f} B", learner.source),
        Figure(
            "learner on one GPU", in_bytes(learner.on_each_of(1)), f"estimated from shapes ({passes}), not measured on a GPU"
        ),
        Figure(
            "weights on a server", in_bytes(memory.served), "2 bytes per parameter; the cache of the streams is not counted"
        ),
        Figure("memory of a GPU", in_bytes(memory.size), "--gpu-memory; 80 GB are those of an H100"),
        Figure("one stream", f"{engine.alone:,.0f} tokens/s", f"published for an H100, vLLM and 8B, not ours{scaled}"),
        Figure("many streams", f"{engine.full:,.0f} tokens/s", f"published for an H100, vLLM and 8B, not ours{scaled}"),
        Figure("training", f"{engine.learned:,.0f} tokens/s", "assumed: 8 FLOP per parameter and token, 40 % of 989 TFLOP/s"),
        Figure(
            "CPU per turn", f"{1000 * turn:.2f} ms", f"{measured}{'' if world or load.env_cpu is None else ' and --env-cpu'}"
        ),
        Figure("prices per hour", f"${prices.gpu:g}, ${prices.core:g}", "of a GPU and a core: --prices"),
    ]
    if world:
        costs = read_worlds()[world]
        rows.append(
            Figure(
                world,
                f"{costs.megabytes:.0f} MB",
                f"{costs.reset_cpu:.2f} CPU s per reset, {costs.turn_cpu:.2f} per turn, measured on {costs.date} "
                f"({costs.machine}, {costs.episodes} episodes, load average {costs.load:.1f})",
            )
        )
    return rows


def _line(row: ClusterPlan | Refused) -> str:
    if isinstance(row, Refused):
        return f"{row.gpus:6d}{row.episodes:10d}  refused: {row.reason}"
    return (
        f"{row.gpus:6d}{row.episodes:10d}{row.sampling:10d}{in_bytes(row.learner_bytes):>13s}{row.workers:9d}"
        f"{row.rate:12.1f}{row.cores:8d}{row.machines:10d}{row.dollars:8.0f}{row.dollars_per_thousand:17.2f}"
        f"  {row.evidence}  {row.bottleneck}"
    )
