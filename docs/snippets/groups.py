import asyncio

import palestra
from palestra.rollouts import grouped


async def main() -> None:
    played = palestra.rollout("game:GuessTheNumber-v0-easy", "random", n=8, group_size=4, max_turns=3)
    async for group in grouped(played, group_size=4):
        print(group.task.seed, group.rewards)


asyncio.run(main())
