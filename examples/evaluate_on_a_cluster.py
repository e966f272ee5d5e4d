# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[cluster]"]
# ///
"""Evaluate on a Ray cluster: ``uv run --find-links dist examples/evaluate_on_a_cluster.py --address 10.0.0.1:6379``.

The default address, ``local``, starts Ray on this machine. The scores are those of a run in one process, because the random
choices of an episode do not depend on the worker that plays it.
"""

import argparse
import asyncio
import os

from palestra.cluster import ClusterConfig, Dispatcher, Pool
from palestra.cluster.rays import RayProvider
from palestra.rollouts import RolloutOptions, rollout
from palestra.trajectory import Trajectory

GAME = "game:GuessTheNumber-v0-easy"
# Under "uv run", Ray would start its workers with "uv run python", which does not read the requirements of this file.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


async def play(address: str, options: RolloutOptions, workers: int) -> list[Trajectory]:
    """Play the episodes on ``workers`` workers of the cluster."""
    config = ClusterConfig(pools=(Pool(workers=workers, concurrency=16),))
    async with Dispatcher(RayProvider(address), config) as dispatcher:
        return [one async for one in dispatcher.rollout(GAME, "random", options)]


async def play_here(n: int) -> list[Trajectory]:
    """Play the same episodes in this process."""
    return [one async for one in rollout(GAME, "random", n=n)]


def main() -> None:
    """Compare the cluster with this process, episode by episode."""
    parser = argparse.ArgumentParser(description="Evaluate on a Ray cluster.")
    parser.add_argument("--address", default="local", help="HOST:PORT of the head node, auto, or local")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-n", type=int, default=200, help="episodes")
    arguments = parser.parse_args()
    there = asyncio.run(play(arguments.address, RolloutOptions(n=arguments.n), arguments.workers))
    here = asyncio.run(play_here(arguments.n))
    rewards = [{one.task.seed: one.reward for one in played} for played in (there, here)]
    print(f"{len(there)} episodes, mean reward {sum(one.reward for one in there) / len(there):.3f}")
    assert rewards[0] == rewards[1], "the cluster and this process disagree"


if __name__ == "__main__":
    main()
