import aiohttp
import transformers

import palestra
from palestra.agents import Program
from palestra.core import Sampling
from palestra.inference.engines.hf import HFEngine
from palestra.inference.models import build_tiny
from palestra.inference.rendering import renderer_for


async def run(episode):  # type: ignore[no-untyped-def]
    """Your agent: any framework that takes a base URL and an API key. Here it is one loop over plain HTTP."""
    headers = {"Authorization": f"Bearer {episode.api_key}"}
    messages = list(episode.messages)
    async with aiohttp.ClientSession(headers=headers) as session:
        while not episode.ended:
            body = {"model": episode.model, "messages": messages, "max_tokens": 16}
            async with session.post(f"{episode.base_url}/chat/completions", json=body) as answer:
                said = (await answer.json())["choices"][0]["message"]["content"]
            observation = await episode.step(said)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": observation}]


folder = build_tiny()  # or any folder that transformers can load
renderer = renderer_for(transformers.AutoTokenizer.from_pretrained(folder), append_only=True)
agent = Program(run, HFEngine.load(folder), renderer, Sampling(max_tokens=16))

for trajectory in palestra.collect("game:GuessTheNumber-v0-easy", agent, n=4, progress=False):
    sampled = sum(len(segment.logprobs) for segment in trajectory.segments)
    print(trajectory.stop, len(trajectory.turns), "turns,", sampled, "tokens sampled")
