"""A discrete-event simulation of rollouts: the episodes per second of a given number of workers.

Modelled are workers that play one turn of one episode at a time (an event loop is one server), a delay per reply of the model,
and batches that one driver process decodes. The costs are measured (``constants.json``, by ``benchmarks/cluster.py --write``),
and the same benchmark compares predictions with measured rates on one machine. Not modelled: the network, failures, and prompts
that are not cached.
"""

import heapq
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from palestra.cluster.jobs import AHEAD
from palestra.cluster.worker import BATCH, LINGER
from palestra.errors import UsageError

__all__ = ["CONSTANTS", "SIMULATED", "Constants", "Prediction", "simulate"]

CONSTANTS = Path(__file__).with_name("constants.json")
SIMULATED = 1000
"""The most episodes that are simulated one by one."""


@dataclass(frozen=True)
class Constants:
    """Costs on the machine that measured them, in seconds and bytes."""

    date: str
    machine: str
    turn_cpu: float
    """CPU seconds per turn of a light environment, including the scheduler."""
    burning_cpu: float
    """CPU seconds per episode of the environment that the benchmark compares predictions with."""
    batch_cpu: float
    """CPU seconds of the driver per batch: the call, and the bytes in and out of Ray."""
    batch_seconds: float
    """Round-trip seconds of a batch."""
    decode_cpu: float
    """CPU seconds of the driver per episode of a batch."""
    trajectory_bytes: float
    turns: float
    """Turns per episode when ``turn_cpu`` and ``trajectory_bytes`` were measured."""

    @classmethod
    def read(cls, path: Path = CONSTANTS) -> "Constants":
        """Read the constants from ``path``."""
        try:
            data = json.loads(path.read_text())
            return cls(**{field.name: data[field.name] for field in fields(cls)})
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"{path} does not hold the constants of a plan: {error!r}") from None

    def as_dict(self) -> dict[str, Any]:
        """The constants as they are written to the file."""
        return asdict(self)


@dataclass(frozen=True)
class Prediction:
    """The result of a simulation."""

    rate: float
    """Episodes per second."""
    busy: dict[str, float]
    """The share of time that ``workers`` and ``driver`` were busy."""


class _Server:
    """Serves one request at a time, first come first served."""

    def __init__(self) -> None:
        self.free = 0.0
        self._asked = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """The time at which a request of ``seconds`` that arrives ``now`` is done."""
        self.free = max(now, self.free) + seconds
        self._asked += seconds
        return self.free

    def worked(self, now: float) -> float:
        """Busy seconds until ``now``, without the requests still in the queue."""
        return self._asked - max(0.0, self.free - now)


class _Simulation:
    """Episodes that circulate between their worker, the engine and the driver."""

    def __init__(self, constants: Constants, turn_cpu: float, turns: int, workers: int, concurrency: int) -> None:
        self.constants = constants
        self.turn_cpu = turn_cpu
        self.turns = turns
        self.workers = [_Server() for _ in range(workers)]
        self.driver = _Server()
        self.concurrency = concurrency
        self.outbox = [0] * workers
        self.batches = [0] * workers
        self.spare = [0] * workers
        """Episodes leased ahead and not begun."""
        self.hungry = [0] * workers
        self.streams = 0
        self.finished = 0
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), what))

    def worked(self, now: float) -> tuple[float, float]:
        """Busy seconds of all workers together, and of the driver."""
        return sum(worker.worked(now) for worker in self.workers), self.driver.worked(now)

    def begin(self, think: Callable[[int], float]) -> None:
        """Start as many episodes as run at once, and lease a few more, at the rate of an idle machine."""
        self.think = think
        cycle = self.turns * (think(self.concurrency * len(self.workers)) + self.turn_cpu)
        pace = self.concurrency / max(cycle, self.turns * self.turn_cpu * self.concurrency, 1e-6)
        self.spare = [min(SIMULATED, max(1, math.ceil(AHEAD * pace)))] * len(self.workers)
        for worker in range(len(self.workers)):
            for _ in range(self.concurrency):
                self._turn(0.0, worker, 0)

    def run(self, episodes: int) -> float:
        """Simulate until ``episodes`` more have ended, and return the time."""
        until, now = self.finished + episodes, 0.0
        while self.finished < until:
            now, _, what = heapq.heappop(self._events)
            what(now)
        return now

    def _turn(self, now: float, worker: int, turn: int) -> None:
        """Wait for the model, then step the environment."""
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
        else:  # a worker without episodes to begin sends its batch at once
            self.hungry[worker] += 1
            if self.outbox[worker]:
                self._send(now, worker, self.batches[worker])

    def _send(self, now: float, worker: int, batch: int) -> None:
        if batch != self.batches[worker]:  # already sent
            return
        self.batches[worker] += 1
        count, self.outbox[worker] = self.outbox[worker], 0
        cost = self.constants.batch_cpu + count * self.constants.decode_cpu
        # Encoding costs the worker as much as decoding costs the driver.
        self.workers[worker].serve(now, cost)
        arrived = self.driver.serve(now + self.constants.batch_seconds / 2, cost)
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
    """Simulate workers that play ``concurrency`` episodes each; ``think`` maps the number of streams to seconds per reply."""
    model = _Simulation(constants, episode_cpu / turns, turns, workers, concurrency)
    model.begin(think)
    held = workers * concurrency + sum(model.spare)
    warm = model.run(2 * held)
    before, worked = model.finished, model.worked(warm)
    now = model.run(max(500, 3 * held))
    busy = [(later - earlier) / (now - warm) for earlier, later in zip(worked, model.worked(now), strict=True)]
    return Prediction((model.finished - before) / (now - warm), {"workers": busy[0] / workers, "driver": busy[1]})
