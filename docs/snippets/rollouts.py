import asyncio

import palestra


async def my_model(text: str) -> str:
    await asyncio.sleep(0.01)  # a call to a model
    return "\\boxed{5}"


async def main() -> None:
    async for trajectory in palestra.rollout("game:GuessTheNumber-v0-easy", my_model, n=64, concurrency=64, deadline=30.0):
        if trajectory.reward is None:
            print("failed:", trajectory.failures[-1].message)
        else:
            print(trajectory.task.seed, trajectory.stop, f"{trajectory.reward:.2f}", len(trajectory.turns))


asyncio.run(main())
