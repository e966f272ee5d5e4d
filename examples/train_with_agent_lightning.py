# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["palestra", "agentlightning==0.3.0"]
# ///
"""Train with Agent Lightning on a game of Palestra.

Training needs a GPU, and Agent Lightning's extra for verl. It was not run::

    uv run --find-links dist --with "agentlightning[verl]==0.3.0" examples/train_with_agent_lightning.py

``--smoke`` needs neither: Agent Lightning's runner plays four episodes with a server that guesses by binary search.
"""

import asyncio
import re
import sys
from itertools import count

import agentlightning as agl
from aiohttp import web

from palestra import Task
from palestra.bridges.agent_lightning import lit_agent, task_rows

ENV = "game:GuessTheNumber-v0-easy"
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"


def train() -> None:
    """Let verl train, and eight runners play. A rollout whose environment failed is played again."""
    config = {
        "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
        "data": {"train_batch_size": 32, "max_prompt_length": 2048, "max_response_length": 512},
        "actor_rollout_ref": {
            "model": {"path": MODEL},
            "rollout": {"name": "vllm", "n": 4, "tensor_model_parallel_size": 1},
            "actor": {"ppo_mini_batch_size": 32, "ppo_micro_batch_size_per_gpu": 4, "optim": {"lr": 1e-6}},
        },
        "trainer": {"n_gpus_per_node": 1, "total_epochs": 1, "logger": ["console"]},
    }
    trainer = agl.Trainer(algorithm=agl.VERL(config), n_runners=8)
    trainer.fit(lit_agent(max_tokens=256), train_dataset=task_rows(Task(ENV, seed) for seed in range(1024)))


async def smoke() -> None:
    """Play four episodes with the runner, the tracer and the store of Agent Lightning, and show what it would train on."""
    numbers = count()

    async def search(request: web.Request) -> web.Response:
        low, high = 1, 10
        said = " ".join(message["content"] for message in (await request.json())["messages"])
        for way, number in re.findall(r"is (higher|lower) than (\d+)", said):
            low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        message = {"role": "assistant", "content": f"\\boxed{{{(low + high) // 2}}}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "token_ids": [1, 2, 3]}
        names = {"id": f"reply-{next(numbers)}", "object": "chat.completion", "created": 0, "model": "search"}
        return web.json_response({**names, "choices": [choice], "prompt_token_ids": [0]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", search)
    server = web.AppRunner(app)
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    store, runner = agl.InMemoryLightningStore(), agl.LitAgentRunner(agl.AgentOpsTracer())
    with runner.run_context(agent=lit_agent(max_tokens=32), store=store):
        for row in task_rows(Task(ENV, seed) for seed in range(4)):
            rollout = await runner.step(row, resources={"llm": agl.LLM(endpoint=f"{site.name}/v1", model="search")})
            triplets = agl.TracerTraceToTriplet().adapt(await store.query_spans(rollout.rollout_id))
            print("turns", len(triplets), "reward", triplets[-1].reward)
            assert (triplets[-1].reward or 0.0) > 0.5, "binary search did not find the number"
    await server.cleanup()


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        asyncio.run(smoke())
    else:
        train()
