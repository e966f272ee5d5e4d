import asyncio

from palestra.cluster import ClusterConfig, Dispatcher, LocalProvider, Pool
from palestra.rollouts import RolloutOptions


async def main() -> None:
    config = ClusterConfig(pools=(Pool(concurrency=16),))
    async with Dispatcher(LocalProvider(), config) as dispatcher:  # RayProvider("auto") of palestra.cluster.rays, for a cluster
        async for trajectory in dispatcher.rollout("game:GuessTheNumber-v0-easy", "random", RolloutOptions(n=20)):
            print(trajectory.task.seed, trajectory.reward)


asyncio.run(main())
