"""N1: a training run on Ray in which everything goes wrong at once, and the ledger still adds up.

F1 frames between client and server are cut, delayed, repeated, reordered and dropped · F2 processes that host environments are
killed · F3 one episode in twenty hangs · F4 the learner is killed · F5 a byte of the newest checkpoint is flipped whenever the
learner dies · F6 one trajectory in twenty is invalid · F7 rollout workers are killed.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.cluster.chaos import hosts
from tests.cluster.learning import last_step, titles

from palestra.cluster.config import ClusterConfig, Pool
from palestra.cluster.dispatcher import Dispatcher
from palestra.cluster.learner import LearnerActor, Learning, train_on_cluster
from palestra.durable.ledger import Audit, Event, Ledger, State
from palestra.foundation.encoding import floats
from palestra.recipes.config import TrainConfig
from palestra.rollouts import AnyPolicy, Book, Envs, RolloutFunction, RolloutOptions
from palestra.serve import EnvServer
from palestra.serve.tokens import new_token
from palestra.testing.faults import FaultProxy
from palestra.trajectory import Trajectory

GAME = "fragile:Fragile"


class PoisonedLearner(LearnerActor):
    """Is handed log-probs that are no numbers, one trajectory in twenty."""

    def play_with(self, dispatcher: Dispatcher) -> RolloutFunction:
        async def play(
            envs: Envs, policy: AnyPolicy, options: RolloutOptions, *, book: Book | None = None
        ) -> AsyncGenerator[Trajectory, None]:
            async for trajectory in dispatcher.rollout(envs, policy, options, book=book):
                yield _poisoned(trajectory) if (trajectory.task.seed + trajectory.member) % 20 == 3 else trajectory

        return play


def _poisoned(trajectory: Trajectory) -> Trajectory:
    if not trajectory.segments:
        return trajectory
    first, *others = trajectory.segments
    bad = msgspec.structs.replace(first, logprobs=floats(np.full(len(first.logprobs), np.nan)))
    return msgspec.structs.replace(trajectory, segments=(bad, *others))


@dataclass
class Damage:
    """What was done to the run, and what the ledger says."""

    audit: Audit
    ends: Counter[str]
    """How often each rollout came to an end, counted from the events alone."""
    kills: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def consumed(self) -> float:
        """The share that was learnt from: where all fails, a ledger adds up too easily."""
        return self.audit.consumed / self.audit.issued

    @property
    def sound(self) -> bool:
        return self.audit.balanced and set(self.ends.values()) == {1} and len(self.ends) == self.audit.issued


async def everything_at_once(model: Path, folder: Path, *, steps: int, seed: int, pause: float = 2.0) -> Damage:
    """Run it to its end, and spoil what can be spoilt."""
    token = new_token()
    kills: Counter[str] = Counter()
    async with (
        EnvServer(GAME, token, isolate=True) as server,
        FaultProxy("127.0.0.1", int(server.url.rpartition(":")[2]), seed=seed) as proxy,
    ):
        config = _config(model, f"remote:{proxy.url}#{GAME}", steps, seed)
        variables = {"PALESTRA_TOKEN": token, "PALESTRA_TOKEN_HOST": "127.0.0.1"}
        pool = Pool(workers=2, cpus=0.5, runtime_env={"env_vars": variables})
        run = Learning(msgspec.json.encode(config), str(folder), ClusterConfig(pools=(pool,)), replica={"num_cpus": 0.5})
        killer = asyncio.create_task(_kill(folder, kills, random.Random(seed), pause))
        try:
            await train_on_cluster(run, kind=PoisonedLearner)
        finally:
            killer.cancel()
        frames = sum(proxy.counts.values())
    with Ledger(folder / "ledger") as ledger:
        audit = ledger.audit()
    return Damage(audit, _ends(folder / "ledger"), kills, frames, _fates(folder / "ledger"))


def _config(model: Path, env: str, steps: int, seed: int) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(model)},
        "envs": {env: 1.0},
        "steps": steps,
        "seed": seed,
        "staleness": 1,
        "play": {"tasks": 8, "group_size": 4, "max_tokens": 6, "deadline": 20.0},
        "engine": {"batch": 32, "rows": 32},
        "advantage": {"method": "rebn", "discount": 0.9},
        "checkpoint_every": 1,
    }
    return msgspec.convert(data, TrainConfig)


async def _kill(folder: Path, kills: Counter[str], rng: random.Random, pause: float) -> None:
    """A host of an environment every time; a worker, replica or learner whenever the run has made a step since the last one."""
    turn, seen = 0, 0
    while True:
        await asyncio.sleep(pause)
        _end(kills, "environment", hosts(), rng)
        if last_step(folder) <= seen:
            continue
        seen = last_step(folder)
        kind = ("RayWorker", "PoisonedLearner", "RayWorker", "Replica")[turn % 4]
        turn += 1
        victims = [pid for pid, title in titles().items() if kind in title]
        if _end(kills, kind, victims, rng) and kind == "PoisonedLearner":
            kills["checkpoint"] += _flip(folder / "checkpoints", rng)


def _end(kills: Counter[str], kind: str, pids: list[int], rng: random.Random) -> bool:
    with suppress(ProcessLookupError):
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
            kills[kind] += 1
            return True
    return False


def _flip(checkpoints: Path, rng: random.Random) -> int:
    """Spoil the newest checkpoint, if there is one to go back to."""
    paths = sorted(checkpoints.glob("step-*"))
    if len(paths) < 2:
        return 0
    file = rng.choice(sorted(path for path in paths[-1].rglob("*") if path.is_file()))
    data = bytearray(file.read_bytes())
    if not data:
        return 0
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return 1


def _events(path: Path) -> list[Event]:
    return [msgspec.json.decode(line.partition(b" ")[2], type=Event) for line in path.read_bytes().splitlines()]


def _ends(path: Path) -> Counter[str]:
    final = (State.CONSUMED, State.FAILED, State.DROPPED)
    return Counter(event.rollout for event in _events(path) if event.to in final and not event.again)


def _fates(path: Path) -> Counter[str]:
    final = (State.CONSUMED, State.FAILED, State.DROPPED)
    return Counter(f"{event.to} {event.reason}".strip() for event in _events(path) if event.to in final and not event.again)
