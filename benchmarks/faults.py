r"""What a run survives: killed hosts of environments, environments that hang, killed Ray workers and nodes, all of it at once.

    python benchmarks/faults.py                 # F2, F3, F7, a lost node, N1 with 3 seeds: about a quarter of an hour
    python benchmarks/faults.py --quick         # small ones, under 50 s: F2 and F3 without Ray
    python benchmarks/faults.py --only F7 N1 --seeds 2

Digests are compared with those of the same tasks played in this process with nobody killed.
"""

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

from rows import Row, finish  # noqa: E402
from tests.cluster import chaos  # noqa: E402
from tests.cluster.chaos import HERE, digest  # noqa: E402

from palestra import StopReason, Task, rollout  # noqa: E402
from palestra.cluster.rays import connect  # noqa: E402


def f2(quick: bool) -> list[Row]:
    episodes = 300 if quick else 5000
    outcome = asyncio.run(chaos.kill_env_workers(episodes))
    print(f"F2: {outcome.kills} kills in {outcome.seconds:.0f} s")
    return [
        Row(f"F2 {episodes} episodes, a host killed every 50 ms: kills", outcome.kills, ""),
        Row("F2 episodes unaccounted for", outcome.unaccounted, "<= 0"),
        Row("F2 completed, %", outcome.completed * 100, ">= 99"),
    ]


async def hang(episodes: int, hangs: bool) -> chaos.Outcome:
    """F3: one in twenty never answers; an episode may take three times as long as usual."""
    tasks = [Task(f"{HERE}:{'Hanging' if hangs else 'Model'}", number) for number in range(episodes)]
    began = time.perf_counter()
    played = [trajectory async for trajectory in rollout(tasks, "random", concurrency=256, deadline=1.5)]
    outcome = chaos.Outcome(episodes, played, seconds=time.perf_counter() - began)
    stops = {trajectory.task.seed: trajectory.stop is StopReason.DEADLINE for trajectory in played}
    assert [stops[number] for number in range(episodes)] == [hangs and number % 20 == 7 for number in range(episodes)]
    return outcome


def f3(quick: bool) -> list[Row]:
    """An episode usually takes half a second; the deadline is three times that."""
    episodes = 4000 if quick else 20_000
    free = asyncio.run(hang(episodes, hangs=False))
    hanging = asyncio.run(hang(episodes, hangs=True))
    print(f"F3: {free.seconds:.1f} s without hangs, {hanging.seconds:.1f} s with")
    return [
        Row(f"F3 {episodes} episodes, 5 % hang: time over the fault-free time", hanging.seconds / free.seconds, "<= 1.3"),
        Row("F3 episodes unaccounted for", hanging.unaccounted, "<= 0"),
    ]


def f7(quick: bool) -> list[Row]:
    kills = 5 if quick else KILLS[0]
    ray = connect("local", num_cpus=4)

    async def run() -> list[Row]:
        outcome = await chaos.kill_ray_workers(kills, SEEDS[0])
        same = digest(outcome.played) == digest(await chaos.played_here(outcome.issued, f"{HERE}:Patient"))
        return [
            Row(
                f"F7 kills of Ray workers and actors, over {outcome.issued} episodes",
                outcome.kills,
                f">= {kills}",
            ),
            Row("F7 episodes lost or duplicated", outcome.unaccounted, "<= 0"),
            Row("F7 trajectories differ from an undisturbed run", float(not same), "<= 0"),
        ]

    rows = asyncio.run(run())
    ray.shutdown()
    return rows


def nodes(quick: bool) -> list[Row]:
    async def run() -> list[Row]:
        outcome = await chaos.lose_a_node(*found)
        same = digest(outcome.played) == digest(await chaos.played_here(outcome.issued, f"{HERE}:Patient"))
        return [
            Row(
                f"three nodes, one killed, one added, {outcome.issued} episodes: lost or duplicated",
                outcome.unaccounted,
                "<= 0",
            ),
            Row("three nodes: nodes used", len(outcome.places), ">= 4"),
            Row("three nodes: trajectories differ from an undisturbed run", float(not same), "<= 0"),
        ]

    with chaos.three_nodes() as found:
        return asyncio.run(run())


def n1(quick: bool) -> list[Row]:
    from together import everything_at_once

    from palestra.inference.models import build_tiny

    rows = []
    ray = connect("local", num_cpus=4)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = build_tiny(folder / "tiny", envs="game:GuessTheNumber*", words=400, width=32)
        for seed in SEEDS[: 1 if quick else None]:
            found = asyncio.run(everything_at_once(model, folder / f"run-{seed}", steps=4 if quick else 10, seed=seed))
            print(
                f"N1 seed {seed}: {found.audit}; killed {dict(found.kills)}; {found.frames} frames faulted; "
                f"{dict(found.outcomes)}",
                flush=True,
            )
            rows.append(Row(f"N1 seed {seed}: kills", sum(found.kills.values()), ""))
            rows.append(Row(f"N1 seed {seed}: share consumed", found.consumed, ">= 0.5"))
            rows.append(
                Row(f"N1 seed {seed}: {found.audit.issued} issued, not ended exactly once", float(not found.sound), "<= 0")
            )
    ray.shutdown()
    return rows


SEEDS = [0, 1, 2]
KILLS = [50]
PARTS: dict[str, Callable[[bool], list[Row]]] = {"F2": f2, "F3": f3, "F7": f7, "nodes": nodes, "N1": n1}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small ones, under 50 s")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="only these")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS, help="of N1, and the first one of F7")
    parser.add_argument("--kills", type=int, default=KILLS[0], help="of F7, so that it can be run in pieces")
    options = parser.parse_args()
    SEEDS[:] = options.seeds
    KILLS[:] = [options.kills]
    chosen = options.only or (["F2", "F3"] if options.quick else list(PARTS))
    rows = []
    for name in chosen:
        rows += PARTS[name](options.quick)
        print(f"{name}: {'ok' if all(row.ok for row in rows) else 'NOT ok'}", flush=True)
    finish(rows)


if __name__ == "__main__":
    main()
