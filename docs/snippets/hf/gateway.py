import asyncio

import aiohttp
import transformers

from palestra.agents import Gateway
from palestra.inference.engines.hf import HFEngine
from palestra.inference.models import build_tiny
from palestra.inference.rendering import renderer_for

folder = build_tiny()  # or any folder that transformers can load
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)


async def main() -> None:
    gateway = Gateway(HFEngine.load(folder), lambda tools: renderer_for(tokenizer, tools=tools, append_only=True))
    async with gateway.serving():
        episode = gateway.open(seed=1)
        await agent(episode.openai_url, episode.key)
        recording = await gateway.close(episode)
    for call in recording.calls:
        print(call.number, call.link, call.role, call.prompt_tokens, "prompt tokens,", call.tokens, "sampled")


async def agent(url: str, key: str) -> None:
    """Stands for your agent, which uses an SDK."""
    messages = [{"role": "user", "content": "Guess a number."}]
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        for _ in range(2):
            body = {"model": "any", "messages": messages, "max_tokens": 16}
            async with session.post(f"{url}/chat/completions", json=body) as answer:
                messages.append((await answer.json())["choices"][0]["message"])
            messages.append({"role": "user", "content": "Higher."})


asyncio.run(main())
