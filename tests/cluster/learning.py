"""Training runs on Ray, with and without kills; used by the tests and by ``benchmarks/cluster_training.py``."""

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from palestra.cluster.config import ClusterConfig, Pool
from palestra.cluster.learner import Learning, train_on_cluster
from palestra.recipes.config import TrainConfig


def learning(config: TrainConfig, folder: Path, workers: int = 2) -> Learning:
    """``config`` with rollout workers that share the machine."""
    pool = Pool(workers=workers, cpus=0.5)
    return Learning(
        msgspec.json.encode(config), str(folder), ClusterConfig(pools=(pool,)), replicas=1, replica={"num_cpus": 0.5}
    )


async def train_under_fire(
    run: Learning, every: float, kinds: tuple[str, ...], *, seed: int = 0, most: int = 1_000_000
) -> tuple[int, int]:
    """Train while, every so many seconds and ``most`` times, a process is killed whose title (Ray's) names one of ``kinds``.

    Not before the run has made a step since the last kill: a run that is killed faster than it starts never ends.
    How many were killed, and how often the learner died.
    """
    rng, kills, seen = random.Random(seed), 0, 0

    async def kill() -> None:
        nonlocal kills, seen
        while kills < most:
            await asyncio.sleep(every)
            if last_step(Path(run.folder)) <= seen:
                continue
            seen = last_step(Path(run.folder))
            victims = [pid for pid, title in titles().items() if any(kind in title for kind in kinds)]
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    kills += 1

    killer = asyncio.create_task(kill())
    try:
        deaths = await train_on_cluster(run)
    finally:
        killer.cancel()
    return kills, deaths


def titles() -> dict[int, str]:
    """Every actor of this process's Ray: it writes their class into the command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().split(b"\0")[0].decode(errors="replace")
            if line.startswith("ray::") and os.getpid() in _ancestors(int(path.parent.name)):
                found[int(path.parent.name)] = line
    return found


def _ancestors(pid: int) -> list[int]:
    parents = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        parents.append(pid)
    return parents


def last_step(folder: Path) -> int:
    """The last step that was recorded; 0 before the first."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    steps = [int(msgspec.json.decode(line)["step"]) for line in lines if line.endswith(b"\n")]
    return max(steps, default=0)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """One entry for each step."""
    path = folder / "metrics.jsonl"
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []
