import asyncio

from palestra.cluster import ClusterConfig, Crew, LocalFleet, Pool


async def main() -> None:
    config = ClusterConfig(pools=(Pool(concurrency=16),))
    async with Crew(LocalFleet(), config) as crew:  # RayFleet("auto") of palestra.cluster.rays, for a cluster
        async for trajectory in crew.rollout("game:GuessTheNumber-v0-easy", "random", n=20):
            print(trajectory.task.seed, trajectory.reward)


asyncio.run(main())
