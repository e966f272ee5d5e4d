# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["palestra[hf]", "openpipe-art==0.5.18"]
# ///
"""Train with ART on a game of Palestra.

Training needs a GPU, and ART's backend::

    uv run --find-links dist --with "openpipe-art[backend]==0.5.18" examples/train_with_art.py

``--smoke`` needs neither: ART gathers and tokenizes four episodes, with a fixed strategy in place of the model.
"""

import asyncio
import re
import sys
import tempfile
from pathlib import Path

import art
from art.preprocessing.tokenize import tokenize_trajectory_groups
from transformers import AutoTokenizer

from palestra import SampledPolicy, Task
from palestra.bridges.art import rollout
from palestra.core import Sampling
from palestra.inference.engines.calls import CallEngine
from palestra.inference.rendering import renderer_for

ENV = "game:GuessTheNumber-v0-easy"
MODEL = "Qwen/Qwen2.5-1.5B-Instruct"
GROUPS, SIZE = 8, 8


async def gather(policy: SampledPolicy, tokenizer, tasks: list[Task], size: int) -> list[art.TrajectoryGroup]:
    """Play every task ``size`` times. A failed episode is an exception of its group, not a zero."""
    groups = (
        art.TrajectoryGroup(
            rollout(task, policy, group=group, member=at, tokenizer=tokenizer, max_turns=8) for at in range(size)
        )
        for group, task in enumerate(tasks)
    )
    return await art.gather_trajectory_groups(groups, max_exceptions=0.1)


async def train(steps: int = 50) -> None:
    """Play on ART's inference server, and train on what was played."""
    from art.local import LocalBackend

    from palestra.inference.servers.vllm import VLLMEngine

    model = art.TrainableModel(name="guesser", project="palestra", base_model=MODEL)
    await model.register(LocalBackend())
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    renderer = renderer_for(tokenizer, append_only=True)
    for step in range(await model.get_step(), steps):
        server = str(model.inference_base_url).removesuffix("/v1")
        engine = await VLLMEngine(server, model=model.get_inference_name()).connect()
        policy = SampledPolicy(renderer, engine, Sampling(max_tokens=256))
        groups = await gather(policy, tokenizer, [Task(ENV, step * GROUPS + at) for at in range(GROUPS)], SIZE)
        await engine.close()
        await model.train(groups, config=art.TrainConfig(learning_rate=1e-5))


async def smoke() -> None:
    """Play two groups by binary search, and show what ART would train on."""
    from palestra.inference.models.tiny import build_tiny

    tokenizer = AutoTokenizer.from_pretrained(build_tiny(Path(tempfile.mkdtemp()) / "tiny", envs=ENV))

    async def search(prompt_ids: list[int], sampling: Sampling):
        low, high = 1, 10
        for way, number in re.findall(r"is (higher|lower) than (\d+)", tokenizer.decode(prompt_ids)):
            low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
        ids = [*tokenizer.encode(f"\\boxed{{{(low + high) // 2}}}", add_special_tokens=False), sampling.stop_ids[0]]
        return ids, [-0.1] * len(ids), True

    renderer = renderer_for(tokenizer, append_only=True)
    policy = SampledPolicy(renderer, CallEngine(search, context_length=2048), Sampling(max_tokens=32))
    groups = await gather(policy, tokenizer, [Task(ENV, seed) for seed in range(2)], 2)
    for result in tokenize_trajectory_groups(tokenizer, groups, False, True, drop_zero_advantage_trajectories=False):
        print("tokens", len(result.token_ids), "sampled", sum(result.assistant_mask), "reward", result.trajectory.reward)
    assert all(one.reward > 0.5 for group in groups for one in group), "binary search did not find the number"


if __name__ == "__main__":
    asyncio.run(smoke() if sys.argv[1:] == ["--smoke"] else train())
