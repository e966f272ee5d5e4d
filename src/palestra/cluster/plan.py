"""``palestra plan``: GPUs, workers, bottleneck and cost of a training run, simulated and not measured.

CPU costs are measured (see ``simulation``). The figures of GPUs are published ones (``EngineFigures``): Palestra has not run on
GPUs, so no row of a plan has been checked against a real run.

Large systems consist of equal parts, so at most a thousand episodes are simulated, on the same share of the machines.
"""

import math
from dataclasses import dataclass

from palestra.cluster.simulation import SIMULATED, Constants, simulate

__all__ = ["EngineFigures", "Plan", "Prices", "Workload", "plan"]

CORES_PER_MACHINE, GPUS_PER_MACHINE = 64, 8
GIGABYTES_PER_CORE = 4.0
"""Memory comes with cores: episodes that need more of it need more cores."""


@dataclass(frozen=True)
class EngineFigures:
    """One GPU that samples an 8B model in bf16 with vLLM: published figures of an H100 (see docs/design/scale.md), not ours."""

    alone: float = 150.0
    """Tokens per second of a single stream."""
    full: float = 12_500.0
    """Tokens per second of very many streams together."""
    learned: float = 6_200.0
    """Tokens per second in training: 8 FLOP per parameter and token, at 40 % of 989 TFLOP/s."""

    def speed(self, streams: float) -> float:
        """Tokens per second of each of ``streams`` streams."""
        return self.full / (streams + self.full / self.alone - 1)


@dataclass(frozen=True)
class Workload:
    """The size of an episode."""

    turns: int = 10
    tokens: int = 200
    """Sampled tokens per turn."""
    env_cpu: float | None = None
    """CPU seconds per turn; by default those of a light environment."""
    reset_cpu: float = 0.0
    """CPU seconds per reset."""
    megabytes: float = 0.0
    """Memory of an episode under way, such as its part of a browser."""
    trained: bool = True
    """Whether a learner trains on the episodes."""


@dataclass(frozen=True)
class Prices:
    """USD per hour. Replace them with your own."""

    gpu: float = 2.5
    core: float = 0.04


@dataclass(frozen=True)
class Plan:
    """A simulated run and its bottleneck."""

    gpus: int
    episodes: int
    sampling: int
    """GPUs that sample; the others train."""
    workers: int
    rate: float
    bottleneck: str
    cores: int
    """CPU cores of the workers, and those that their memory needs. Machines and costs count these."""
    machines: int
    dollars: float
    """USD per hour."""
    dollars_per_thousand: float
    """USD per thousand episodes."""


def plan(
    gpus: int,
    episodes: int,
    load: Workload | None = None,
    *,
    constants: Constants | None = None,
    engine: EngineFigures | None = None,
    prices: Prices | None = None,
) -> Plan:
    """Find the best split of ``gpus`` into sampling and training for ``episodes`` at once; simulated, not measured."""
    load, engine, prices = load or Workload(), engine or EngineFigures(), prices or Prices()
    constants = constants or Constants.read()
    splits = sorted({max(1, round(gpus * share / 16)) for share in range(1, 17)})
    if load.trained and gpus > 1:
        splits = [sampling for sampling in splits if sampling < gpus]
    # An estimate without workers says which splits are worth a simulation.
    splits.sort(key=lambda sampling: _estimate(gpus, sampling, episodes, load, engine), reverse=True)
    plans = [_split(gpus, sampling, episodes, load, constants, engine, prices) for sampling in splits[:2]]
    return max(plans, key=lambda one: (round(one.rate, 3), -one.workers))


def _estimate(gpus: int, sampling: int, episodes: int, load: Workload, engine: EngineFigures) -> float:
    """Episodes per second, if only the engine and the learner took time."""
    answer = load.tokens / engine.speed(episodes / sampling)
    return min(episodes / (load.turns * answer), _learner_rate(gpus, sampling, load, engine))


def _split(
    gpus: int, sampling: int, episodes: int, load: Workload, constants: Constants, engine: EngineFigures, prices: Prices
) -> Plan:
    turn_cpu = constants.turn_cpu + (load.env_cpu or 0.0) + load.reset_cpu / load.turns
    answer = load.tokens / engine.speed(episodes / sampling)
    # One worker per core, and so many that each is at most half busy: then no turn waits long for its step.
    wanted = episodes * turn_cpu / (answer + turn_cpu)
    workers = max(1, math.ceil(wanted / 0.5))
    share = min(1.0, SIMULATED / episodes)
    simulated = max(1, round(workers * share))
    concurrency = max(1, round(episodes * share / simulated))
    streams = sampling * min(share, simulated * concurrency / episodes)
    found = simulate(
        constants,
        workers=simulated,
        concurrency=concurrency,
        turns=load.turns,
        episode_cpu=turn_cpu * load.turns,
        think=lambda active: load.tokens / engine.speed(active / streams),
    )
    scale = episodes / (simulated * concurrency)
    limits = {
        "engine": found.rate * scale,
        "driver": 1 / (constants.decode_cpu + constants.batch_cpu / 64),
        "learner": _learner_rate(gpus, sampling, load, engine),
    }
    rate = min(limits.values())
    bottleneck = min(limits, key=lambda name: limits[name])
    if bottleneck == "engine" and episodes / sampling < engine.full / engine.alone:
        bottleneck = "too few episodes"
    cores = max(workers, math.ceil(episodes * load.megabytes / 1024 / GIGABYTES_PER_CORE))
    machines = math.ceil(gpus / GPUS_PER_MACHINE) + math.ceil(max(0, cores - 32 * math.ceil(gpus / 8)) / CORES_PER_MACHINE)
    dollars = gpus * prices.gpu + cores * prices.core
    return Plan(gpus, episodes, sampling, workers, rate, bottleneck, cores, machines, dollars, dollars / (rate * 3.6))


def _learner_rate(gpus: int, sampling: int, load: Workload, engine: EngineFigures) -> float:
    if not load.trained:
        return math.inf
    learning = gpus - sampling
    # A single GPU samples and trains in turn.
    tokens = learning * engine.learned if learning else engine.learned / (1 + engine.learned / engine.full)
    return tokens / (load.turns * load.tokens)
