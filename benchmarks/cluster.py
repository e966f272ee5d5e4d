r"""What Ray costs a rollout, what a second worker brings, and the constants that ``palestra plan`` reckons with.

    python benchmarks/cluster.py            # some minutes
    python benchmarks/cluster.py --quick    # under 50 s: fewer rounds
    python benchmarks/cluster.py --write    # and keep the constants, with the date, where palestra plan finds them

"Ray alone" is an actor that plays the same episodes with the same runner, and is sent the same keys and sends the same bytes
in the same batches; what it lacks is leases, sessions, losses, fair shares and back-pressure. Everything runs on this machine;
the network between machines is left out.
"""

import argparse
import asyncio
import hashlib
import json
import os
import secrets
import statistics
import sys
import time
from collections.abc import Awaitable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "benchmarks")]

from rows import Row, finish, share_of_a_core  # noqa: E402

from palestra import Env, Step, Task  # noqa: E402
from palestra.cluster import ClusterConfig, Dispatcher, Pool  # noqa: E402
from palestra.cluster.rays import RayProvider, connect  # noqa: E402
from palestra.cluster.simulation import CONSTANTS, Constants, simulate  # noqa: E402
from palestra.cluster.worker import BATCH, Lease, PlayedLease, decode_batch  # noqa: E402
from palestra.foundation.encoding import decode_msgpack, encode_msgpack  # noqa: E402
from palestra.rollouts import EpisodeKey, EpisodeRunner, RolloutOptions, episode_keys, rollout  # noqa: E402

LEAST_SHARE = 0.8
"""The least share of a core that plain processes, as many as workers, must get for a rate to be compared with the plan, which
knows nothing of what else runs. The rate is divided by that share."""
GAMES = ["game:GuessTheNumber-v0", "game:Mastermind-v0-easy", "game:Sudoku-v0-easy"]
HERE = "benchmarks.cluster"


class Burning(Env):
    """Five turns of two milliseconds of work each."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return "", {}

    def step(self, action: str) -> Step:
        self.turn += 1
        data = b"x" * 1024
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            data = hashlib.sha256(data).digest() * 32
        return Step(data[:8].hex(), 1.0, self.turn == 5, False, {})


class Bare:
    """Ray alone."""

    def __init__(self) -> None:
        self._runner: EpisodeRunner | None = None

    async def play(self, leases: bytes) -> bytes:
        if self._runner is None:
            self._runner = await EpisodeRunner("random", RolloutOptions()).__aenter__()
        keys = [lease.key for lease in decode_msgpack(leases, list[Lease])]
        played = await asyncio.gather(*(self._runner.play(key) for key in keys))
        return encode_msgpack([PlayedLease(0, t.group, t.member, p) for t, p in zip(keys, played, strict=True)])

    async def echo(self, data: bytes) -> bytes:
        return data


def batches(keys: list[EpisodeKey], size: int) -> list[bytes]:
    leases = [Lease(0, key) for key in keys]
    return [encode_msgpack(leases[at : at + size]) for at in range(0, len(leases), size)]


async def bare_rate(actor: Any, keys: list[EpisodeKey], size: int) -> float:
    """Episodes per second of Ray alone, two batches in flight."""
    waiting = batches(keys, size)[::-1]
    count, began = 0, time.perf_counter()

    async def lane() -> None:
        nonlocal count
        while waiting:
            batch = decode_batch(await actor.play.remote(waiting.pop()))
            count += len(batch)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(lane())
    assert count == len(keys)
    return count / (time.perf_counter() - began)


async def crew_rate(dispatcher: Dispatcher, envs: Any, n: int, policy: Any = "random") -> float:
    """Episodes per second of a dispatcher on ``n`` tasks of each environment, once its workers are there."""
    began = time.perf_counter()
    count = sum([1 async for _ in dispatcher.rollout(envs, policy, RolloutOptions(n=n, concurrency=512))])
    return count / (time.perf_counter() - began)


async def overhead_rows(ray: Any, quick: bool) -> list[Row]:
    n, rounds = (333, 4) if quick else (667, 16)  # of each of the three games
    keys = list(episode_keys(GAMES, RolloutOptions(n=n))[0])
    actor = ray.remote(Bare).options(num_cpus=1, max_concurrency=100).remote()
    ratios = []
    async with Dispatcher(RayProvider(), ClusterConfig(pools=(Pool(workers=1),))) as dispatcher:
        await crew_rate(dispatcher, GAMES, 67)
        await bare_rate(actor, keys[:200], 64)
        for turn in range(rounds):
            # Short rounds, each begun by the other of the two: the speed of a core changes within seconds.
            ours = await crew_rate(dispatcher, GAMES, n) if turn % 2 else 0.0
            bare = await bare_rate(actor, keys, 64)
            ours = ours or await crew_rate(dispatcher, GAMES, n)
            ratios.append(ours / bare)
            print(f"Ray alone {bare:.0f} episodes/s, through the dispatcher {ours:.0f}", flush=True)
    ray.kill(actor)
    return [
        Row(
            "episodes/s through the dispatcher over Ray alone, same batches",
            statistics.median(ratios),
            ">= 0.9",
        )
    ]


class Measured(NamedTuple):
    """A rate of episodes, and what the machine gave for it."""

    workers: int
    rate: float
    share: float
    """The share of a core that each of as many plain processes got, just before and just after."""


async def shared(workers: int, rate: Awaitable[float]) -> Measured:
    """Measure a rate between two measurements of what the machine gives to as many processes."""
    before = share_of_a_core(workers)
    measured = await rate
    return Measured(workers, measured, (before + share_of_a_core(workers)) / 2)


async def scaling_rows(quick: bool) -> tuple[list[Row], list[Measured]]:
    """One worker, then two, in turns, on episodes that compute; and the rates, for the plan to be checked against."""
    n, rounds = (200, 2) if quick else (600, 5)
    ratios, rates = [], []
    env = f"{HERE}:Burning"
    pools = {count: ClusterConfig(pools=(Pool(workers=count, concurrency=4),)) for count in (1, 2)}
    for _ in range(rounds):
        pair = []
        for count, config in pools.items():
            async with Dispatcher(RayProvider(), config) as dispatcher:
                while len(dispatcher.workers) < count:
                    await asyncio.sleep(0.05)
                await crew_rate(dispatcher, env, 20 * count, _same)
                rates.append(await shared(count, crew_rate(dispatcher, env, n, _same)))
                pair.append(rates[-1].rate)
        print(f"1 worker {pair[0]:.0f} episodes/s, 2 workers {pair[1]:.0f}", flush=True)
        ratios.append(pair[1] / pair[0])
    if statistics.median(one.share for one in rates if one.workers == 2) < LEAST_SHARE:
        return [], rates  # the rows of the plan say why
    return [Row("2 Ray workers over 1 on episodes that compute", statistics.median(ratios), ">= 1.7")], rates


def _same(text: str) -> str:
    return ""


async def constants(ray: Any, quick: bool) -> Constants:
    """What one thing costs, on this machine."""
    n = 167 if quick else 667  # of each of the three games
    began = time.process_time()
    played = [one async for one in rollout(GAMES, "random", n=n)]
    episode = (time.process_time() - began) / len(played)
    turns = statistics.fmean(len(one.turns) for one in played)
    sizes = [len(encode_msgpack(one)) for one in played]
    batch = encode_msgpack([PlayedLease(0, one.group, 0, (one,)) for one in played[:BATCH]])
    began = time.process_time()
    for _ in range(20):
        decode_batch(batch)
    decode = (time.process_time() - began) / 20 / BATCH
    actor = ray.remote(Bare).options(num_cpus=1).remote()
    await actor.echo.remote(batch)
    calls = 100 if quick else 400
    began, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        await actor.echo.remote(batch)
    cpu, call = (time.process_time() - began) / calls, (time.perf_counter() - wall) / calls
    ray.kill(actor)
    return Constants(
        date=date.today().isoformat(),
        machine=f"{os.cpu_count()} cores",
        turn_cpu=episode / turns,
        burning_cpu=0.010,
        batch_cpu=cpu,
        batch_seconds=call,
        decode_cpu=decode,
        trajectory_bytes=statistics.fmean(sizes),
        turns=turns,
    )


def plan_rows(found: Constants, rates: list[Measured]) -> list[Row]:
    """The plan's prediction for the episodes that compute, over what was measured."""
    rows = []
    for count in (1, 2):
        work = found.burning_cpu + 5 * found.turn_cpu
        predicted = simulate(found, workers=count, episode_cpu=work, concurrency=4, turns=5).rate
        rows += compared(f"{count} workers", predicted, [one for one in rates if one.workers == count])
    return rows


async def waiting_rows(found: Constants, quick: bool) -> list[Row]:
    """The same for episodes that wait for a model (five answers of a tenth of a second), with one to three workers."""
    rows = []
    for count in (1, 2, 3):
        config = ClusterConfig(pools=(Pool(workers=count, concurrency=16),))
        async with Dispatcher(RayProvider(), config) as dispatcher:
            while len(dispatcher.workers) < count:
                await asyncio.sleep(0.05)
            await crew_rate(dispatcher, "tests.cluster.chaos:Model", 16 * count)
            episodes = 16 * count * (3 if quick else 10)
            repeats = [await crew_rate(dispatcher, "tests.cluster.chaos:Model", episodes) for _ in range(3)]
        work = 5 * found.turn_cpu
        predicted = simulate(found, workers=count, episode_cpu=work, concurrency=16, turns=5, think=lambda _: 0.1).rate
        # Waiting takes no core, so these rates are compared as they are.
        rows += compared(f"{count} workers that wait", predicted, [Measured(count, rate, 1.0) for rate in repeats])
    return rows


def compared(what: str, predicted: float, repeats: list[Measured]) -> list[Row]:
    """Compare a prediction, which knows nothing of what else runs, with rates per share of a core that was to be had.

    If that share is small, dividing by it says little: then the comparison is refused, in words.
    """
    share = statistics.median(one.share for one in repeats)
    measured = statistics.median(one.rate / one.share for one in repeats)
    print(
        f"{what}: predicted {predicted:.0f} episodes/s, measured {measured:.0f} per whole core, which each had to {share:.0%}"
    )
    rows = [
        Row(
            f"share of a core that a process got (less: other work runs, nothing is compared), {what}",
            share,
            f">= {LEAST_SHARE}",
        )
    ]
    if share < LEAST_SHARE:
        print(f"{what}: not compared, because other work takes {1 - share:.0%} of each core (limit {1 - LEAST_SHARE:.0%})")
        return rows
    return [*rows, Row(f"plan: predicted over measured rate, off by, {what}", abs(predicted / measured - 1), "<= 0.15")]


async def run(quick: bool, write: bool, only: str | None) -> list[Row]:
    ray = connect("local", num_cpus=4)
    if only == "waiting":
        return await waiting_rows(Constants.read(), quick)
    rows = [] if only == "scaling" else await overhead_rows(ray, quick)
    if only == "overhead":
        return rows
    print(f"load of the machine before the second part: {os.getloadavg()[0]:.1f}")
    more, rates = await scaling_rows(quick)
    print(f"after it: {os.getloadavg()[0]:.1f}; two workers and their dispatcher alone make 2 to 3")
    found = await constants(ray, quick)
    print(json.dumps(found.as_dict(), indent=2))
    if write:
        CONSTANTS.write_text(json.dumps(found.as_dict(), indent=2) + "\n")
    return [*rows, *more, *plan_rows(found, rates), *([] if only else await waiting_rows(found, quick))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under 50 s")
    parser.add_argument("--write", action="store_true", help="keep the constants for palestra plan")
    parser.add_argument("--only", choices=["overhead", "scaling", "waiting"], help="only this part")
    options = parser.parse_args()
    # Ray's workers are nice to everybody else, by default: then whatever else runs would be measured too.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - it is spelt so
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    finish(asyncio.run(run(options.quick, options.write, options.only)))


if __name__ == "__main__":
    main()
