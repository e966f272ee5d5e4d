"""How large, how fast, how dear: a small discrete-event model of a run, fed with constants that were measured.

What is in it: workers that play one turn of one of their episodes at a time (an event loop is one server), an engine whose
streams share its tokens, batches that go back to one employer, and a learner that must keep up. What costs how much was
measured (``constants.json``, by ``benchmarks/cluster.py --write``); what GPUs do was published (``Engine``). Left out:
networks, failures, and prompts that are not cached.

Large systems are made of like parts, so no more than a few thousand episodes are simulated, on the same share of the machines.
"""

import heapq
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from palestra.cluster.crew import AHEAD
from palestra.cluster.worker import BATCH, LINGER
from palestra.errors import UsageError

__all__ = ["CONSTANTS", "Constants", "Engine", "Plan", "Prediction", "Prices", "Workload", "plan", "simulate"]

CONSTANTS = Path(__file__).with_name("constants.json")
SIMULATED = 1000
"""The most episodes that are followed one by one."""
CORES_PER_MACHINE, GPUS_PER_MACHINE = 64, 8


@dataclass(frozen=True)
class Constants:
    """What things cost on the machine that measured them, in seconds and bytes."""

    date: str
    machine: str
    turn_cpu: float
    """CPU of one turn of a light environment, with the scheduler's part."""
    burning_cpu: float
    """CPU of an episode of the environment that the model is checked with."""
    batch_cpu: float
    """The employer's CPU for one batch: the call, and the bytes in and out of Ray."""
    batch_seconds: float
    """A batch's way there and back."""
    decode_cpu: float
    """The employer's CPU for each episode of a batch."""
    trajectory_bytes: float
    turns: float
    """Turns of the episodes that ``turn_cpu`` and ``trajectory_bytes`` were measured on."""

    @classmethod
    def read(cls, path: Path = CONSTANTS) -> "Constants":
        """The constants in ``path``."""
        try:
            data = json.loads(path.read_text())
            return cls(**{field.name: data[field.name] for field in fields(cls)})
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"{path} does not hold the constants of a plan: {error!r}") from None

    def as_dict(self) -> dict[str, Any]:
        """For the file."""
        return asdict(self)


@dataclass(frozen=True)
class Engine:
    """One GPU that samples: an 8B model in bf16 on an H100 with vLLM, as published (see docs/design/scale.md)."""

    alone: float = 150.0
    """Tokens per second of a single stream."""
    full: float = 12_500.0
    """Tokens per second of very many."""
    learned: float = 6_200.0
    """Tokens per second that the same GPU trains on: 8 FLOP a parameter and token, 40 % of 989 TFLOP/s."""

    def speed(self, streams: float) -> float:
        """Tokens per second of each of ``streams``."""
        return self.full / (streams + self.full / self.alone - 1)


@dataclass(frozen=True)
class Workload:
    """What an episode is."""

    turns: int = 10
    tokens: int = 200
    """Sampled in a turn."""
    env_cpu: float | None = None
    """Seconds of CPU of one turn; that of a light environment by default."""
    trained: bool = True
    """Whether a learner has to train on what is sampled."""


@dataclass(frozen=True)
class Prices:
    """Dollars an hour. Put in your own."""

    gpu: float = 2.5
    core: float = 0.04


@dataclass(frozen=True)
class Prediction:
    """What the simulation came to."""

    rate: float
    """Episodes per second."""
    busy: dict[str, float]
    """How much of their time ``workers`` and ``employer`` were at work."""


@dataclass(frozen=True)
class Plan:
    """A run, and what stands in its way."""

    gpus: int
    episodes: int
    sampling: int
    """GPUs that sample; the others learn."""
    workers: int
    rate: float
    bottleneck: str
    machines: int
    dollars: float
    """An hour."""
    dollars_per_thousand: float
    """For a thousand episodes."""


class _Server:
    """Does one thing at a time, in the order in which it was asked."""

    def __init__(self) -> None:
        self.free = 0.0
        self._asked = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When work of ``seconds`` that arrives ``now`` is done."""
        self.free = max(now, self.free) + seconds
        self._asked += seconds
        return self.free

    def worked(self, now: float) -> float:
        """Seconds it has been at work until ``now``; what waits in its queue is still to come."""
        return self._asked - max(0.0, self.free - now)


class _Simulation:
    """Episodes that go round between their worker, the engine and the employer."""

    def __init__(self, constants: Constants, turn_cpu: float, turns: int, workers: int, concurrency: int) -> None:
        self.constants = constants
        self.turn_cpu = turn_cpu
        self.turns = turns
        self.workers = [_Server() for _ in range(workers)]
        self.employer = _Server()
        self.concurrency = concurrency
        self.outbox = [0] * workers
        self.batches = [0] * workers
        self.spare = [0] * workers
        """Leased ahead, not begun."""
        self.hungry = [0] * workers
        self.streams = 0
        self.finished = 0
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), what))

    def worked(self, now: float) -> tuple[float, float]:
        """Seconds that the workers, together, and the employer have been at work."""
        return sum(worker.worked(now) for worker in self.workers), self.employer.worked(now)

    def begin(self, think: Callable[[int], float]) -> None:
        """Start as many episodes as may run at once, and hand out a little more, at the pace of an idle machine."""
        self.think = think
        cycle = self.turns * (think(self.concurrency * len(self.workers)) + self.turn_cpu)
        pace = self.concurrency / max(cycle, self.turns * self.turn_cpu * self.concurrency, 1e-6)
        self.spare = [min(SIMULATED, max(1, math.ceil(AHEAD * pace)))] * len(self.workers)
        for worker in range(len(self.workers)):
            for _ in range(self.concurrency):
                self._turn(0.0, worker, 0)

    def run(self, episodes: int) -> float:
        """Simulate until so many more have ended; the time by then."""
        until, now = self.finished + episodes, 0.0
        while self.finished < until:
            now, _, what = heapq.heappop(self._events)
            what(now)
        return now

    def _turn(self, now: float, worker: int, turn: int) -> None:
        """The model answers, then the environment takes the step."""
        self.streams += 1
        wait = self.think(self.streams)

        def answered(now: float) -> None:
            self.streams -= 1
            self.at(self.workers[worker].serve(now, self.turn_cpu), stepped)

        def stepped(now: float) -> None:
            if turn + 1 < self.turns:
                self._turn(now, worker, turn + 1)
            else:
                self._end(now, worker)

        self.at(now + wait, answered)

    def _end(self, now: float, worker: int) -> None:
        self.finished += 1
        self.outbox[worker] += 1
        if self.outbox[worker] == 1:
            batch = self.batches[worker]
            self.at(now + LINGER, lambda now: self._send(now, worker, batch))
        if self.outbox[worker] == BATCH:
            self._send(now, worker, self.batches[worker])
        if self.spare[worker]:
            self.spare[worker] -= 1
            self._turn(now, worker, 0)
        else:  # a worker with nothing more to begin does not linger
            self.hungry[worker] += 1
            if self.outbox[worker]:
                self._send(now, worker, self.batches[worker])

    def _send(self, now: float, worker: int, batch: int) -> None:
        if batch != self.batches[worker]:  # it has gone already
            return
        self.batches[worker] += 1
        count, self.outbox[worker] = self.outbox[worker], 0
        cost = self.constants.batch_cpu + count * self.constants.decode_cpu
        # Encoding costs the worker what decoding costs the employer.
        self.workers[worker].serve(now, cost)
        arrived = self.employer.serve(now + self.constants.batch_seconds / 2, cost)
        self.at(arrived + self.constants.batch_seconds / 2, lambda now: self._give(now, worker, count))

    def _give(self, now: float, worker: int, count: int) -> None:
        begin = min(count, self.hungry[worker])
        self.hungry[worker] -= begin
        self.spare[worker] += count - begin
        for _ in range(begin):
            self._turn(now, worker, 0)


def simulate(
    constants: Constants,
    *,
    workers: int,
    concurrency: int,
    turns: int,
    episode_cpu: float,
    think: Callable[[int], float] = lambda streams: 0.0,
) -> Prediction:
    """Workers that play ``concurrency`` episodes each; ``think`` is how long an answer takes when so many are being written."""
    model = _Simulation(constants, episode_cpu / turns, turns, workers, concurrency)
    model.begin(think)
    held = workers * concurrency + sum(model.spare)
    warm = model.run(2 * held)
    before, worked = model.finished, model.worked(warm)
    now = model.run(max(500, 3 * held))
    busy = [(later - earlier) / (now - warm) for earlier, later in zip(worked, model.worked(now), strict=True)]
    return Prediction((model.finished - before) / (now - warm), {"workers": busy[0] / workers, "employer": busy[1]})


def plan(
    gpus: int,
    episodes: int,
    load: Workload | None = None,
    *,
    constants: Constants | None = None,
    engine: Engine | None = None,
    prices: Prices | None = None,
) -> Plan:
    """The best split of ``gpus`` for ``episodes`` at once, the workers it needs, and what stands in its way."""
    load, engine, prices = load or Workload(), engine or Engine(), prices or Prices()
    constants = constants or Constants.read()
    splits = sorted({max(1, round(gpus * share / 16)) for share in range(1, 17)})
    if load.trained and gpus > 1:
        splits = [sampling for sampling in splits if sampling < gpus]
    # A glance says which splits are worth a simulation.
    splits.sort(key=lambda sampling: _glance(gpus, sampling, episodes, load, engine), reverse=True)
    plans = [_split(gpus, sampling, episodes, load, constants, engine, prices) for sampling in splits[:2]]
    return max(plans, key=lambda one: (round(one.rate, 3), -one.workers))


def _glance(gpus: int, sampling: int, episodes: int, load: Workload, engine: Engine) -> float:
    """The rate, if nothing but engine and learner took time."""
    answer = load.tokens / engine.speed(episodes / sampling)
    return min(episodes / (load.turns * answer), _learner_rate(gpus, sampling, load, engine))


def _split(  # noqa: PLR0913 - what a plan is made of
    gpus: int, sampling: int, episodes: int, load: Workload, constants: Constants, engine: Engine, prices: Prices
) -> Plan:
    turn_cpu = constants.turn_cpu if load.env_cpu is None else load.env_cpu + constants.turn_cpu
    answer = load.tokens / engine.speed(episodes / sampling)
    # A worker is a core: as many as keep each at most half busy, so that no turn waits long for its step.
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
        "employer": 1 / (constants.decode_cpu + constants.batch_cpu / 64),
        "learner": _learner_rate(gpus, sampling, load, engine),
    }
    rate = min(limits.values())
    bottleneck = min(limits, key=lambda name: limits[name])
    if bottleneck == "engine" and episodes / sampling < engine.full / engine.alone:
        bottleneck = "too few episodes"
    machines = math.ceil(gpus / GPUS_PER_MACHINE) + math.ceil(max(0, workers - 32 * math.ceil(gpus / 8)) / CORES_PER_MACHINE)
    dollars = gpus * prices.gpu + workers * prices.core
    return Plan(gpus, episodes, sampling, workers, rate, bottleneck, machines, dollars, dollars / (rate * 3.6))


def _learner_rate(gpus: int, sampling: int, load: Workload, engine: Engine) -> float:
    if not load.trained:
        return math.inf
    learning = gpus - sampling
    # A single GPU does one after the other.
    tokens = learning * engine.learned if learning else engine.learned / (1 + engine.learned / engine.full)
    return tokens / (load.turns * load.tokens)
