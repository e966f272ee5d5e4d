import asyncio

import palestra
from palestra.serve import EnvServer
from palestra.serve.tokens import new_token


async def main() -> None:
    token = new_token()
    async with EnvServer("game:*", token) as server:  # what `palestra serve "game:*"` does
        env = palestra.make_async(f"remote:{server.url}#game:GuessTheNumber-v0-easy", token=token)
        observation, _ = await env.reset(seed=0)
        step = await env.step("\\boxed{5}")
        print(observation, step.observation, step.reward)
        await env.close()


asyncio.run(main())
