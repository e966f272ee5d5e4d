# /// script
# requires-python = ">=3.11"
# dependencies = ["palestra[render]", "verl==0.9.1", "torch", "cachetools", "fastapi", "uvicorn"]
# ///
"""Train with verl on a game of Palestra.

Training needs GPUs. The arguments are verl's own; the data set and the agent loop are written into the folder given first::

    uv run --find-links dist examples/train_with_verl.py data actor_rollout_ref.model.path=Qwen/Qwen3-4B …

``--smoke`` needs no GPU: verl's ``AgentLoopWorker`` plays four episodes, with a fixed strategy in place of the model, and verl
computes the advantages.
"""

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from palestra import Task
from palestra.bridges.verl import task_rows

ENV = "game:GuessTheNumber-v0-easy"
LOOP = """
- name: palestra
  _target_: palestra.bridges.verl.PalestraAgentLoop
  max_tokens: 256
"""


def write(folder: Path) -> list[str]:
    """Write the data set and the agent loop, and return the settings that name them."""
    from datasets import Dataset

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "loop.yaml").write_text(LOOP)
    for split, count in (("train", 4096), ("test", 64)):
        tasks = [Task(ENV, seed, split=split) for seed in range(count)]
        Dataset.from_list(task_rows(tasks)).to_parquet(folder / f"{split}.parquet")
    return [
        f"data.train_files={folder / 'train.parquet'}",
        f"data.val_files={folder / 'test.parquet'}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={folder / 'loop.yaml'}",
        "actor_rollout_ref.rollout.calculate_log_probs=true",
        "algorithm.adv_estimator=grpo",
    ]


def smoke(folder: Path) -> None:
    """Play four episodes in verl's worker, by binary search."""
    import datasets
    import numpy as np
    import torch
    import verl
    from hydra import compose, initialize_config_dir
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
    from verl.workers.rollout.replica import TokenOutput

    from palestra.inference.models.tiny import build_tiny

    settings = [*write(folder), f"actor_rollout_ref.model.path={build_tiny()}", "actor_rollout_ref.rollout.name=vllm"]
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = compose("ppo_trainer", overrides=settings)

    class Searcher:
        """Stands in for verl's LLM servers."""

        async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
            low, high = 1, 10
            for way, number in re.findall(r"is (higher|lower) than (\d+)", worker.tokenizer.decode(prompt_ids)):
                low, high = (int(number) + 1, high) if way == "higher" else (low, int(number) - 1)
            ids = worker.tokenizer.encode(f"\\boxed{{{(low + high) // 2}}}", add_special_tokens=False)
            ids.append(worker.tokenizer.eos_token_id)
            return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))

    worker = AgentLoopWorker(config, Searcher())
    rows = datasets.Dataset.from_parquet(str(folder / "train.parquet")).select(range(4)).rename_column("prompt", "raw_prompt")
    columns = {name: np.array([*rows[name], None], dtype=object)[:-1] for name in ("task", "agent_name", "raw_prompt")}
    batch = verl.DataProto.from_dict(tensors={"dummy": torch.zeros(4, 1)}, non_tensors=columns)
    played = asyncio.run(worker.generate_sequences(batch)).batch
    advantages, _ = compute_grpo_outcome_advantage(played["rm_scores"], played["response_mask"], np.array(["task"] * 4))
    print("rewards", played["rm_scores"].sum(1).tolist(), "sampled tokens", played["response_mask"].sum(1).tolist())
    print("advantages", advantages.max(1).values.tolist())


if __name__ == "__main__":
    if sys.argv[1:] == ["--smoke"]:
        smoke(Path(tempfile.mkdtemp()))
    else:
        folder, *arguments = sys.argv[1:]
        subprocess.run([sys.executable, "-m", "verl.trainer.main_ppo", *write(Path(folder).resolve()), *arguments], check=True)
