# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[render]", "openrlhf==0.11.2"]
# ///
"""Train with OpenRLHF on a game of Palestra.

Training needs GPUs. This file is also the agent that OpenRLHF loads. The other arguments are OpenRLHF's own::

    uv run --find-links dist examples/train_with_openrlhf.py data.jsonl --actor.model_name_or_path Qwen/Qwen3-4B …

``--smoke`` needs no GPU: OpenRLHF's executor plays four episodes, with a fixed strategy in place of vLLM. With ``uv run`` it
still installs OpenRLHF's requirements; `pip install --no-deps openrlhf==0.11.2` is enough for it.
"""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from palestra import Task
from palestra.bridges.openrlhf import agent_executor, task_rows

ENV = "game:GuessTheNumber-v0-easy"

AgentExecutor = agent_executor(max_tokens=256)


def train(data: Path, arguments: list[str]) -> None:
    """Write the data set and start OpenRLHF's trainer with this file as its agent."""
    rows = task_rows(Task(ENV, seed) for seed in range(4096))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["--train.agent_func_path", __file__, "--data.prompt_dataset", str(data)]
    keys = ["--data.input_key", "prompt", "--data.label_key", "label"]
    subprocess.run([sys.executable, "-m", "openrlhf.cli.train_ppo_ray", *settings, *keys, *arguments], check=True)


def smoke() -> None:
    """Play four episodes in the executor, by binary search."""
    from transformers import AutoTokenizer

    from palestra.inference.models.tiny import build_tiny

    tokenizer = AutoTokenizer.from_pretrained(build_tiny())

    class Searcher:
        """Stands in for OpenRLHF's vLLM engine."""

        async def generate(self, prompt_ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
            low, high = 1, 10
            for way, number in re.findall(r"is (higher|lower) than (\d+)", tokenizer.decode(prompt_ids)):
                low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
            ids = [*tokenizer.encode(f"\\boxed{{{(low + high) // 2}}}", add_special_tokens=False), tokenizer.eos_token_id]
            logprobs = [{one: SimpleNamespace(logprob=-0.5)} for one in ids]
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids, finish_reason="stop", logprobs=logprobs)])

    for row in task_rows(Task(ENV, seed) for seed in range(4)):
        params = SimpleNamespace(max_tokens=None, logprobs=1)
        played = asyncio.run(AgentExecutor().execute(row["prompt"], row["label"], params, 1024, tokenizer, Searcher()))
        print(f"reward {played['reward']:.2f}, {len(played['observation_tokens'])} tokens, sampled {played['action_ranges']}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        smoke()
    else:
        train(Path(sys.argv[1]).resolve(), sys.argv[2:])
