"""``palestra plan``: GPUs, workers, bottleneck and cost of a training run, simulated and not measured.

CPU costs are measured (see ``simulation``). The figures of GPUs are published ones (``EngineFigures``): Palestra has not run on
GPUs, so no row of a plan has been checked against a real run. The memory of the learner is the dry run's
(``training.memory``): a split of the GPUs in which the learner or the weights of the servers do not fit is not simulated, and
a number of GPUs without any other split is ``Refused``.

Large systems consist of equal parts, so at most a thousand episodes are simulated, on the same share of the machines.
"""

import math
from dataclasses import dataclass, field

from palestra.cluster.simulation import SIMULATED, Constants, simulate
from palestra.training.memory import RankMemory, in_bytes

__all__ = ["ClusterPlan", "EngineFigures", "GpuMemory", "Prices", "Refused", "Workload", "plan"]

CORES_PER_MACHINE, GPUS_PER_MACHINE = 64, 8
GIGABYTES_PER_CORE = 4.0
"""Memory comes with cores: episodes that need more of it need more cores."""
PUBLISHED = 8e9
"""Parameters of the model that the published speeds are of."""
_SERVED = 0.9
"""The share of a GPU's memory that vLLM uses by default. What its weights leave of it is the cache of its streams."""
_MOST_RANKS = 4096


@dataclass(frozen=True)
class EngineFigures:
    """One H100 that samples a model of 8 billion parameters in bf16 with vLLM: published figures, not ours. See
    docs/design/scale.md.
    """

    alone: float = 150.0
    """Tokens per second of a single stream."""
    full: float = 12_500.0
    """Tokens per second of very many streams together."""
    learned: float = 6_200.0
    """Tokens per second in training: 8 FLOP per parameter and token, at 40 % of 989 TFLOP/s."""

    @classmethod
    def of(cls, parameters: float) -> "EngineFigures":
        """Return assumed figures of a model of another size: as many times slower as it is larger than the published one.

        A smaller model is assumed to train as many times faster, and not to sample faster than the published one.
        """
        larger = parameters / PUBLISHED
        slower = max(1.0, larger)
        return cls(cls.alone / slower, cls.full / slower, cls.learned / larger)

    def speed(self, streams: float) -> float:
        """Tokens per second of each of ``streams`` streams."""
        return self.full / (streams + self.full / self.alone - 1)


@dataclass(frozen=True)
class GpuMemory:
    """The memory that a model needs, and that a GPU has."""

    parameters: float = PUBLISHED
    learner: RankMemory = field(default_factory=lambda: RankMemory.by_size(PUBLISHED))
    size: float = 80e9
    """Bytes of a GPU; by default those of an H100."""

    @property
    def served(self) -> float:
        """Bytes of the weights on the GPU of a server, in bfloat16."""
        return 2 * self.parameters

    def needed(self, gpus: int, sampling: int) -> float:
        """The most bytes of a learner's GPU if ``sampling`` of ``gpus`` sample."""
        if gpus > sampling:
            return self.learner.on_each_of(gpus - sampling)
        # One GPU does both in turns: while it samples there are no activations, and while it trains its server sleeps.
        # A learner with an engine of its own holds both all the time.
        alone, beside = self.learner.on_each_of(1), 0.0 if "engine" in self.learner.parts else self.served
        return max(alone, alone - (self.learner.passes or 0.0) + beside)

    def objection(self, gpus: int, sampling: int, trained: bool) -> str:
        """Why this split cannot be; empty if nothing speaks against it."""
        if not self.parameters:
            return "the size of the model is not known: name a model whose config.json is on this machine"
        if self.served > _SERVED * self.size:
            return (
                f"a server needs {in_bytes(self.served)} for its weights in bfloat16 and may use {_SERVED:.0%} of a GPU's "
                f"{in_bytes(self.size)}; servers of several GPUs are not simulated"
            )
        if not trained:
            return ""
        ranks = max(1, gpus - sampling)
        if ranks % self.learner.divided:
            return f"{self.learner.divided} ranks divide a micro-batch (learner.context_parallel), so {ranks} cannot train"
        if self.needed(gpus, sampling) <= self.size:
            return ""
        ranks_text = "one GPU" if ranks == 1 else f"each of {ranks} GPUs"
        beside = (
            f", and the server beside it {in_bytes(self.served)}"
            if gpus == sampling and "engine" not in self.learner.parts
            else ""
        )
        return (
            f"a GPU has {in_bytes(self.size)}, and the learner needs {in_bytes(self.learner.on_each_of(ranks))} on "
            f"{ranks_text} (in all {self.learner.named_parts()}){beside}"
        )

    def fewest(self) -> int | None:
        """The fewest GPUs on which training fits; ``None`` if it fits on no number."""
        if not self.objection(1, 1, trained=True):
            return 1
        ranks = (ranks for ranks in range(1, _MOST_RANKS) if not self.objection(ranks + 1, 1, trained=True))
        fitting = next(ranks, None)
        return None if fitting is None else fitting + 1


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
class ClusterPlan:
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
    learner_bytes: float
    """Estimated peak memory of each GPU that trains; 0 if none does."""
    evidence: str = "simulated"
    """No row of a plan has been measured."""


@dataclass(frozen=True)
class Refused:
    """A number of GPUs on which the run cannot be."""

    gpus: int
    episodes: int
    reason: str


def plan(
    gpus: int,
    episodes: int,
    load: Workload | None = None,
    *,
    constants: Constants | None = None,
    engine: EngineFigures | None = None,
    prices: Prices | None = None,
    memory: GpuMemory | None = None,
) -> ClusterPlan | Refused:
    """Find the best split of ``gpus`` into sampling and training for ``episodes`` at once; simulated, not measured."""
    load, prices, memory = load or Workload(), prices or Prices(), memory or GpuMemory()
    constants = constants or Constants.read()
    splits = sorted({1, *(max(1, round(gpus * share / 16)) for share in range(1, 17))})
    if load.trained and gpus > 1:
        splits = [sampling for sampling in splits if sampling < gpus]
    objections = {sampling: memory.objection(gpus, sampling, load.trained) for sampling in splits}
    splits = [sampling for sampling in splits if not objections[sampling]]
    if not splits:
        return Refused(gpus, episodes, f"{objections[1]}{_where_it_fits(memory)}")
    engine = engine or EngineFigures.of(memory.parameters)
    # An estimate without workers says which splits are worth a simulation.
    splits.sort(key=lambda sampling: _estimate(gpus, sampling, episodes, load, engine), reverse=True)
    plans = [_split(gpus, sampling, episodes, load, constants, engine, prices, memory) for sampling in splits[:2]]
    return max(plans, key=lambda candidate: (round(candidate.rate, 3), -candidate.workers))


def _where_it_fits(memory: GpuMemory) -> str:
    fewest = memory.fewest()
    return "" if fewest is None else f". The fewest GPUs on which it fits: {fewest}"


def _estimate(gpus: int, sampling: int, episodes: int, load: Workload, engine: EngineFigures) -> float:
    """Episodes per second, if only the engine and the learner took time."""
    answer = load.tokens / engine.speed(episodes / sampling)
    return min(episodes / (load.turns * answer), _learner_rate(gpus, sampling, load, engine))


def _split(
    gpus: int,
    sampling: int,
    episodes: int,
    load: Workload,
    constants: Constants,
    engine: EngineFigures,
    prices: Prices,
    memory: GpuMemory,
) -> ClusterPlan:
    turn_cpu = constants.turn_cpu + (load.env_cpu or 0.0) + load.reset_cpu / load.turns
    answer = load.tokens / engine.speed(episodes / sampling)
    # One worker per core, and so many that each is at most half busy: then no turn waits long for its step.
    wanted = episodes * turn_cpu / (answer + turn_cpu)
    workers = max(1, math.ceil(wanted / 0.5))
    share = min(1.0, SIMULATED / episodes)
    simulated = max(1, round(workers * share))
    concurrency = max(1, round(episodes * share / simulated))
    streams = sampling * min(share, simulated * concurrency / episodes)
    simulation = simulate(
        constants,
        workers=simulated,
        concurrency=concurrency,
        turns=load.turns,
        episode_cpu=turn_cpu * load.turns,
        think=lambda active: load.tokens / engine.speed(active / streams),
    )
    scale = episodes / (simulated * concurrency)
    limits = {
        "engine": simulation.rate * scale,
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
    learner = memory.needed(gpus, sampling) if load.trained else 0.0
    return ClusterPlan(
        gpus=gpus,
        episodes=episodes,
        sampling=sampling,
        workers=workers,
        rate=rate,
        bottleneck=bottleneck,
        cores=cores,
        machines=machines,
        dollars=dollars,
        dollars_per_thousand=dollars / (rate * 3.6),
        learner_bytes=learner,
    )


def _learner_rate(gpus: int, sampling: int, load: Workload, engine: EngineFigures) -> float:
    if not load.trained:
        return math.inf
    learning = gpus - sampling
    # A single GPU samples and trains in turn.
    tokens = learning * engine.learned if learning else engine.learned / (1 + engine.learned / engine.full)
    return tokens / (load.turns * load.tokens)
