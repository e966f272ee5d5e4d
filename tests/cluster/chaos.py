"""Runs in which things are killed on purpose, and what came of them. The tests run small ones, ``benchmarks/faults.py`` all."""

import asyncio
import hashlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palestra import AsyncEnv, Env, Step, Task, Trajectory, rollout
from palestra.cluster import ClusterConfig, Dispatcher, Pool
from palestra.cluster.rays import RayProvider, connect
from palestra.rollouts import AnyPolicy, RolloutOptions

HERE = "tests.cluster.chaos"


class Patient(AsyncEnv):
    """Five turns of a little waiting. With ``hangs`` one task in twenty never answers its third."""

    hangs = False
    pause = 0.02

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self.turn = 0
        return f"{self.task.seed}", {}

    async def step(self, action: str) -> Step:
        self.turn += 1
        if self.hangs and self.turn == 3 and self.task.seed % 20 == 7:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.pause)
        return Step(f"{self.task.seed}.{self.turn}.{action}", float(self.rng.random()), self.turn == 5, False, {})

    async def sample_random_action(self) -> str:
        return str(self.action_rng.integers(1000))


class Model(Patient):
    """As slow as a model's answers make an episode."""

    pause = 0.1


class Hanging(Model):
    hangs = True


class Worked(Env):
    """Three turns of a little work in a process of its own."""

    blocking = True

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return f"{self.task.seed}", {}

    def step(self, action: str) -> Step:
        self.turn += 1
        time.sleep(0.01)
        return Step(f"{self.task.seed}.{self.turn}.{action}", float(self.rng.random()), self.turn == 3, False, {})

    def sample_random_action(self) -> str:
        return str(self.action_rng.integers(1000))


def digest(trajectories: list[Trajectory]) -> str:
    """Of all trajectories, in the order of tasks and members."""
    ordered = sorted(trajectories, key=lambda one: (one.group, one.member, one.player))
    return hashlib.sha256("".join(one.digest() for one in ordered).encode()).hexdigest()


@dataclass
class Outcome:
    """What became of a run."""

    issued: int
    played: list[Trajectory] = field(repr=False)
    kills: int = 0
    seconds: float = 0.0
    places: Counter[str] = field(default_factory=Counter)

    @property
    def unaccounted(self) -> int:
        """Episodes that have no trajectory, or more than one."""
        seen = Counter((one.group, one.member) for one in self.played)
        return sum(seen[group, 0] != 1 for group in range(self.issued)) + sum(key[0] >= self.issued for key in seen)

    @property
    def completed(self) -> float:
        return sum(not one.stop.failed for one in self.played) / self.issued


class Endless:
    """Tasks, as many as are asked for until somebody says stop."""

    def __init__(self, env: str, at_least: int = 0) -> None:
        self.env = env
        self.at_least = at_least
        self.drawn = 0
        self.stopped = False

    def __iter__(self) -> Iterator[Task]:
        while not self.stopped or self.drawn < self.at_least:
            self.drawn += 1
            yield Task(self.env, self.drawn)


@asynccontextmanager
async def dispatcher(workers: int | None = 2, **options: Any) -> AsyncGenerator[Dispatcher, None]:
    """A dispatcher on the Ray that is there."""
    async with Dispatcher(RayProvider(), ClusterConfig(pools=(Pool(workers=workers, **options),))) as found:
        yield found


async def kill_ray_workers(kills: int, seed: int = 0, policy: AnyPolicy = "random") -> Outcome:
    """F7: processes and actors are killed in turn, each time when the one killed before is back at work."""
    tasks, rng, killed = Endless(f"{HERE}:Patient", at_least=300), random.Random(seed), 0
    outcome = Outcome(0, [])

    async def kill(workers: Dispatcher) -> None:
        nonlocal killed
        seen = 0
        while killed < kills:
            busy = [one for one in workers._sessions if one.leased]
            if len(workers.workers) <= seen or not busy:
                await asyncio.sleep(0.01)
                continue
            seen, deaths = len(workers.workers), workers.deaths
            victim = rng.choice(busy)
            if killed % 2:
                await victim.handle.replace()
            else:
                with suppress(ProcessLookupError):
                    os.kill(victim.pid, signal.SIGKILL)
            killed += 1
            while workers.deaths == deaths:  # a busy worker that dies is always noticed
                await asyncio.sleep(0.01)
        tasks.stopped = True

    async with dispatcher(2, concurrency=16) as workers:
        killer = asyncio.create_task(kill(workers))
        async for trajectory in workers.rollout(tasks, policy, RolloutOptions(concurrency=64)):
            outcome.played.append(trajectory)
        await killer
        assert workers.deaths >= kills, f"{workers.deaths} deaths of {kills} kills were noticed"
    outcome.issued, outcome.kills = tasks.drawn, killed
    return outcome


async def played_here(issued: int, env: str, policy: AnyPolicy = "random") -> list[Trajectory]:
    """The same tasks, in this process, with nobody killed."""
    tasks = [Task(env, number + 1) for number in range(issued)]
    return [one async for one in rollout(tasks, policy, concurrency=512)]


async def kill_env_workers(episodes: int, every: float = 0.05, seed: int = 0) -> Outcome:
    """F2: the processes that host environments are killed, one at a time."""
    rng, killed = random.Random(seed), 0

    async def kill() -> None:
        nonlocal killed
        while True:
            await asyncio.sleep(every)
            if pids := hosts():
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    killed += 1

    killer = asyncio.create_task(kill())
    began = time.perf_counter()
    tasks = [Task(f"{HERE}:Worked", number + 1) for number in range(episodes)]
    played = [one async for one in rollout(tasks, "random", concurrency=32)]
    seconds = time.perf_counter() - began
    killer.cancel()
    return Outcome(episodes, played, killed, seconds)


def hosts() -> list[int]:
    """The processes that host environments for this one."""
    zygotes = [
        pid
        for pid in _children(os.getpid())
        if b"palestra.adapters.workers.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return [host for zygote in zygotes for host in _children(zygote)]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in task.read_text().split()]
    return found


@contextmanager
def three_nodes() -> Iterator[tuple[Any, list[Any]]]:
    """A cluster of a head and two more nodes on this machine, and those two."""
    from ray.cluster_utils import Cluster

    store: dict[str, Any] = {"object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **store})
    try:
        nodes = [cluster.add_node(num_cpus=1, **store) for _ in range(2)]
        ray = connect(cluster.address)
        yield cluster, nodes
        ray.shutdown()
    finally:
        cluster.shutdown()


async def lose_a_node(cluster: Any, nodes: list[Any]) -> Outcome:
    """Three nodes; one is killed in the middle, another is added. ``cluster`` is Ray's own for tests."""
    tasks = Endless(f"{HERE}:Patient", at_least=300)
    outcome = Outcome(0, [])
    async with dispatcher(None, concurrency=16) as workers:
        before: set[str] = set()
        async for trajectory in workers.rollout(tasks, "random", RolloutOptions(concurrency=96)):
            outcome.played.append(trajectory)
            outcome.places.update(session.node for session in workers._sessions)
            if not before and len(outcome.played) >= 100 and len(outcome.places) == 3:  # all of them are at work
                before = set(outcome.places)
                cluster.remove_node(nodes.pop(), False)  # both insist on the main thread
                cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
            if before and set(outcome.places) - before:
                tasks.stopped = True
            assert len(outcome.played) < 50_000, "the new node was never used"
    outcome.issued = tasks.drawn
    return outcome
